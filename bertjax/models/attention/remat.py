"""The policy by which a layer that computes itself again keeps the results of kernels."""

import jax

# The checkpoint name of the results of kernels, which are small and take long to compute.
KERNEL_RESULTS = "attention_kernel"
keep_kernel_results = jax.checkpoint_policies.save_only_these_names(KERNEL_RESULTS)

"""Parameters with logical axes, and the dense product."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base.factors import COUNTED, DOWN, KERNEL, UP
from bertjax.models.layers.mesh_axes import mesh_axes


class Parameter(nn.LogicallyPartitioned):
    """The box of a parameter while a model is initialized: its logical axes and a dtype.

    Attributes:
      gathered_as: the dtype in which a step may gather it; it is stored in float32.
      inputs: of a kernel of `Dense`, its axes that are inputs; 0: it is none.
    """

    gathered_as: str = flax.struct.field(default="float32", pytree_node=False)
    inputs: int = flax.struct.field(default=0, pytree_node=False)


def parameter(
    module: nn.Module,
    name: str,
    axes: Sequence[str],
    shape: Iterable[int],
    init: Callable[..., jax.Array],
    gathered_as: str = "float32",
    inputs: int = 0,
) -> jax.Array:
    """A float32 parameter with a logical axis (`bertjax.base.axes`) for each dimension."""

    def boxed(*arguments: Any) -> Any:
        return Parameter(init(*arguments), tuple(axes), gathered_as=gathered_as, inputs=inputs)

    return module.param(name, boxed, tuple(shape), jnp.float32)


class Precision(NamedTuple):
    """The dtypes of a product; its parameters are always float32."""

    compute: str = "float32"  # of the factors and of the result
    gradient: str = "float32"  # in which the kernel's gradient is summed over devices

    @property
    def gathered_as(self) -> str:
        """The dtype in which a step may gather a kernel: float32 if its gradient needs it."""
        return self.compute if self.compute == self.gradient else "float32"

    @property
    def exact(self) -> "Precision":
        """The same in float32, for logits of classes: in bfloat16 many of them would be equal."""
        return self._replace(compute="float32")


@jax.custom_vjp
def add_bias(y: jax.Array, bias: jax.Array) -> jax.Array:
    """y [..., *outputs] + bias [*outputs], in the dtype of y."""
    return y + bias.astype(y.dtype)


def _bias_gradient(bias_dims: int, gradient: jax.Array) -> jax.Array:
    rows = tuple(range(gradient.ndim - bias_dims))
    return gradient.astype(jnp.float32).sum(rows)


def _bias_gradient_by_product(bias_dims: int, gradient: jax.Array) -> jax.Array:
    """The same by the matrix unit of a TPU, with 8 equal rows, the fewest that it takes."""
    rows = tuple(range(gradient.ndim - bias_dims))
    ones = jnp.ones((8, *gradient.shape[: len(rows)]), gradient.dtype)
    sums = jax.lax.dot_general(
        ones,
        gradient,
        ((tuple(range(1, ones.ndim)), rows), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return sums[0]


def _add_bias_backward(bias_dims: int, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    return gradient, jax.lax.platform_dependent(
        gradient,
        tpu=functools.partial(_bias_gradient_by_product, bias_dims),
        default=functools.partial(_bias_gradient, bias_dims),
    )


add_bias.defvjp(lambda y, bias: (add_bias(y, bias), bias.ndim), _add_bias_backward)


@jax.custom_vjp
def _gradient_once(y: jax.Array) -> jax.Array:
    """y, whose gradient a CPU stores: two products read it, and XLA would compute it for each."""
    return y


def _stored_on_cpu(_: None, gradient: jax.Array) -> tuple[jax.Array]:
    stored = jax.lax.optimization_barrier
    return (jax.lax.platform_dependent(gradient, cpu=stored, default=lambda x: x),)


_gradient_once.defvjp(lambda y: (y, None), _stored_on_cpu)


def product(
    subscripts: str, x: jax.Array, kernel: jax.Array, precision: Precision, dtype: str
) -> jax.Array:
    """einsum(subscripts, x, kernel), computed in `precision`, with a result of `dtype`."""
    if precision == Precision("float32", "float32"):
        # Autodiff's gradient is the same, in an order that XLA:CPU computes faster.
        y = jnp.einsum(subscripts, x.astype("float32"), kernel, preferred_element_type=dtype)
        return _gradient_once(y)
    return _product(subscripts, x, kernel, precision, dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3, 4))
def _product(
    subscripts: str, x: jax.Array, kernel: jax.Array, precision: Precision, dtype: str
) -> jax.Array:
    return _product_forward(subscripts, x, kernel, precision, dtype)[0]


def _product_forward(
    subscripts: str, x: jax.Array, kernel: jax.Array, precision: Precision, dtype: str
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    like = jnp.empty((0,), x.dtype), jnp.empty((0,), kernel.dtype)
    x, kernel = x.astype(precision.compute), kernel.astype(precision.compute)
    y = jnp.einsum(subscripts, x, kernel, preferred_element_type=dtype)
    return y, (x, kernel, *like)


def _product_backward(
    subscripts: str,
    precision: Precision,
    dtype: str,
    residuals: tuple[jax.Array, ...],
    gradient: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    x, kernel, like_x, like_kernel = residuals
    inputs, result = subscripts.split("->")
    of_x, of_kernel = inputs.split(",")
    gradient = gradient.astype(precision.compute)
    d_x = jnp.einsum(f"{result},{of_kernel}->{of_x}", gradient, kernel)
    if len(set(of_x) & set(result)) == 1:
        # XLA's CPUs refuse this product in bfloat16 if there is one axis of rows, and the kernel
        # has two of outputs.
        result, gradient, of_x, x = f"z{result}", gradient[None], f"z{of_x}", x[None]
    d_kernel = jnp.einsum(
        f"{result},{of_x}->{of_kernel}", gradient, x, preferred_element_type=precision.gradient
    )
    return d_x.astype(like_x.dtype), d_kernel.astype(like_kernel.dtype)


_product.defvjp(_product_forward, _product_backward)


class Dense(nn.Module):
    """x [..., *inputs] -> [..., *outputs]: a product over the last axes, and a bias.

    If its parameters have the factors of an adapter (`bertjax.base.factors`), which `Part.init`
    makes, their product with x is added. So a kernel that is not trained gets no gradient, which a
    sum of kernel and factors would need. (qwix, which intercepts products, knows a kernel by being
    the same array: here it comes reshaped, cut or cast, and query, key and value would get one
    `down`.)

    Attributes:
      inputs, outputs: logical axis -> size, of the kernel's two sides.
      joined: whether the axes of each side are multiplied as one, where no mesh axis splits them.
        A TPU lays out such a result without gaps, as kernels of attention read and write it.
      split: whether the result is a tuple of arrays along the first axis of the outputs, each by a
        product of its own: none is cut out of a larger array, and no gradients are put together.
    """

    inputs: dict[str, int]
    outputs: dict[str, int]
    kernel_init: nn.initializers.Initializer
    precision: Precision = Precision()
    use_bias: bool = True
    joined: bool = False
    split: bool = False
    bias_init: nn.initializers.Initializer = nn.initializers.zeros

    @nn.compact
    def __call__(self, x: jax.Array) -> Any:
        axes, shape = zip(*self.inputs.items(), *self.outputs.items(), strict=True)
        gathered_as, bias = self.precision.gathered_as, None
        front = len(self.inputs)
        kernel = parameter(self, KERNEL, axes, shape, self.kernel_init, gathered_as, front)
        if self.use_bias:
            sizes = self.outputs.values()
            bias = parameter(self, "bias", tuple(self.outputs), sizes, self.bias_init)
        change = self._change(x) if self.has_variable("params", DOWN) else None
        if not self.split:
            y = self._product(x, kernel, bias, self.outputs)
            return y if change is None else y + change
        (_, count), *others = self.outputs.items()
        kernels = jnp.unstack(kernel, axis=front)
        biases = [None] * count if bias is None else jnp.unstack(bias)
        each = zip(kernels, biases, strict=True)
        ys = tuple(self._product(x, *of_one, dict(others)) for of_one in each)
        if change is None:
            return ys
        changes = jnp.unstack(change, axis=x.ndim - front)
        return tuple(y + own for y, own in zip(ys, changes, strict=True))

    def _change(self, x: jax.Array) -> jax.Array:
        """x times the factors of an adapter: [..., *outputs]."""
        down: jax.Array = self.get_variable("params", DOWN)
        up: jax.Array = self.get_variable("params", UP)
        rows, ins = "abc"[: x.ndim - len(self.inputs)], "ij"[: len(self.inputs)]
        one = "n" * (next(iter(self.outputs)) in COUNTED)
        outs = "opq"[: len(self.outputs) - len(one)]
        dtype = self.precision.compute
        x = product(f"{rows}{ins},{ins}{one}r->{rows}{one}r", x, down, self.precision, dtype)
        return product(
            f"{rows}{one}r,{one}r{outs}->{rows}{one}{outs}", x, up, self.precision, dtype
        )

    def _product(
        self, x: jax.Array, kernel: jax.Array, bias: jax.Array | None, outputs: dict[str, int]
    ) -> jax.Array:
        """x times a kernel [*inputs, *outputs], plus a bias [*outputs]."""
        precision, batch = self.precision, x.shape[: x.ndim - len(self.inputs)]
        shape_in, shape_out = tuple(self.inputs.values()), tuple(outputs.values())
        if self.joined:
            shape_in, shape_out = _joined(self.inputs), _joined(outputs)
        rows, ins, outs = "abc"[: len(batch)], "ij"[: len(shape_in)], "opq"[: len(shape_out)]
        subscripts = f"{rows}{ins},{ins}{outs}->{rows}{outs}"
        x, kernel = x.reshape(batch + shape_in), kernel.reshape(shape_in + shape_out)
        y = product(subscripts, x, kernel, precision, precision.compute)
        if bias is not None:
            y = add_bias(y, bias.reshape(shape_out))
        return y.reshape(*batch, *outputs.values())


def _joined(sizes: dict[str, int]) -> tuple[int, ...]:
    """The sizes of logical axes, where an axis that no mesh axis splits joins the one before it."""
    split = mesh_axes(tuple(sizes)) or (None,) * len(sizes)
    joined: list[int] = []
    for size, axis in zip(sizes.values(), split, strict=True):
        if joined and axis is None:
            joined[-1] *= size
        else:
            joined.append(size)
    return tuple(joined)

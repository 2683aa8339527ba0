"""CoNLL-2003 named entities (section 5.3): fine-tuning, or fixed features (Table 7), also ELMo's.

Commands:
  python launch/finetune.py --config=configs/finetune_ner.py:finetune \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN
  python launch/finetune.py --config=configs/finetune_ner.py:features (the rest as above)
  python launch/finetune.py --config=configs/finetune_ner.py:elmo \\
    --config.data=DIR --config.init_from=elmo:FOLDER --workdir=RUN

DIR holds eng.train and eng.testa (and eng.testb); or your own column files as train.txt, valid.txt,
test.txt. The test file may be of another language: --config.task.test=../OTHER/test.txt. To train
without document context, give --config.task.document_context=False; then sequences are sentences,
so give also --config.max_length=128 --config.grid.batch_size=32

Hardware: one GPU or one TPU chip; a CPU for small models.
Expected: F1 of cased BERT-Base 96.4 dev, 92.4 test; concatenated last four layers 96.1 dev; ELMo
95.7 dev, 92.2 test. ELMo's tagger here reads nothing but ELMo; that of its paper also reads vectors
of words and characters of its own, and stops when dev gets no better.
"""

import ml_collections

from bertjax.base.errors import InputError
from bertjax.config import finetune_config, section
from bertjax.runs.fine_tuning.recipe import Features
from bertjax.tasks.conll import Conll


def get_config(way: str = "finetune") -> ml_collections.ConfigDict:
    """The recipe: a batch is 8 windows of 512 tokens, or about 13 sentences, each."""
    if way not in ("finetune", "features", "elmo"):
        raise InputError(f"configs/finetune_ner.py:{way}: must be :finetune, :features or :elmo")
    config = finetune_config()
    config.task = section(Conll, kind="ner")
    config.max_length = 512
    config.grid.update(batch_size=(8,), learning_rate=(5e-5,), epochs=(4,))
    if way == "features":
        # Several choices of layers are tried one after another, with the same activations.
        config.features = section(Features, choices=("concat_last_four",))
        config.grid.update(batch_size=(32,), learning_rate=(1e-3,), epochs=(10,))
        config.optimizer.weight_decay = 0.0
    if way == "elmo":
        # A BiLSTM-CRF over a learned mix of the layers (arXiv 1802.05365, sections 3.2 and A).
        config.model = dict(compute_dtype="float32")
        config.task.update(crf=True, document_context=False)
        config.features = section(Features, choices=("mix_all",), hidden=200, dropout=0.25)
        config.grid.update(batch_size=(32,), learning_rate=(1e-3,), epochs=(25,))
        config.optimizer.update(weight_decay=0.0, warmup_proportion=0.0, clip_norm=5.0)
    return config

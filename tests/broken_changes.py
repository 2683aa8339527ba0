"""Breaks the code on purpose, one small change at a time, and reports which no test notices.

  python tests/broken_changes.py [--only=TEXT] [--output=FILE.json] [--checkout=DIR] [--slow]

Each change is made alone, in a copy of the checkout. The tests nearest to it run there until one
fails. They must pass without the change, because a test that always fails seems to notice all
changes. The program is for developers of the suite and is no test itself; it takes a few seconds
to a minute for each change.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent


class Change(NamedTuple):
    """A bug that a developer could make.

    Attributes:
      file: the path in the repository.
      old, new: `old` occurs once in the file, and is replaced by `new`.
      tests: files of tests, or single tests, the nearest first.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


CHANGES = [
    # ------------------------------------------------------------- the package and its doors
    Change("setup.py", '"tqdm>=4.70",', "", ("tests/test_installation.py",)),
    Change("setup.py", '"flatbuffers>=25.12",', "", ("tests/test_installation.py",)),
    Change("setup.py", '"importlib_resources>=7.1",', "", ("tests/test_installation.py",)),
    Change(
        "launch/environment.sh",
        'for part in package "$@"; do\n    cmp',
        'for part in "$@"; do\n    cmp',
        (
            "tests/test_installation.py::test_environment_installs_once_with_the_tested_versions",
            "tests/test_installation.py::test_environment_tries_again_after_a_failed_install",
        ),
    ),
    Change(
        "launch/tpu_vm.sh",
        'v5p) accelerator="v5p-$((2 * chips))"',
        'v5p) accelerator="v5p-$chips"',
        ("tests/test_tpu_vm.py::test_names_of_every_type",),
    ),
    Change(
        "launch/tpu_vm.sh",
        "if ((failures > RETRIES)); then",
        "if ((failures >= RETRIES)); then",
        ("tests/test_tpu_vm.py::test_up_gives_up_after_failures_without_a_new_checkpoint",),
    ),
    Change(
        "launch/tpu_vm.sh",
        "((code != 0 && code != 2)) || return",
        "((code != 0)) || return",
        (
            "tests/test_tpu_vm.py::test_what_a_host_refuses_is_not_asked_again",
            "tests/test_tpu_vm.py::test_up_shows_bad_input_and_does_not_try_again",
        ),
    ),
    Change(
        "launch/tpu_vm.sh",
        '*" 2 "*) outcome=bad_input',
        '*"2 "*) outcome=bad_input',
        ("tests/test_tpu_vm.py::test_up_starts_a_stopped_run_again_on_the_same_slice",),
    ),
    Change(
        "launch/prepare_corpus.py",
        "        held_out=_HELD_OUT.value,\n",
        "",
        (
            "tests/test_prepare.py::test_the_door",
            "tests/test_structure.py::test_door_gives_help_at_once[prepare_corpus]",
        ),
    ),
    Change(
        "launch/extract_features.py",
        "        truncate=_TRUNCATE.value,\n",
        "",
        (
            "tests/test_structure.py::test_door_uses_every_flag[extract_features]",
            "tests/test_extract_features.py::test_truncation_is_counted",
            "tests/test_structure.py::test_door_gives_help_at_once[extract_features]",
        ),
    ),
    Change(
        "bertjax/base/signals.py",
        "EXIT_INTERRUPTED = 130",
        "EXIT_INTERRUPTED = 1",
        ("tests/test_commandline.py::test_ctrl_c_is_one_line", "tests/test_commandline.py"),
    ),
    # ----------------------------------------------------------------------------- words
    Change(
        "bertjax/base/axes.py",
        'EMBED_OUT = "embed_out"',
        'EMBED_OUT = "embed"',
        ("tests/sharding/test_rules.py", "tests/test_golden_shardings.py"),
    ),
    Change(
        "bertjax/objectives/classification.py",
        '"label_ids": Field("BS", "int32"),  # -1 on tokens',
        '"label_ids": Field("B", "int32"),  # -1 on tokens',
        ("tests/tasks/test_encoded.py", "tests/tasks/test_tagging.py"),
    ),
    Change(
        "bertjax/base/cloud_storage.py",
        'return "://" in os.fspath(name)',
        'return os.fspath(name).startswith("gcs://")',
        (
            "tests/test_finetune_glue.py::test_an_invalid_workdir_is_refused",
            "tests/test_gcs.py::test_names_become_paths",
        ),
    ),
    Change(
        "bertjax/config.py",
        "section(PhaseSpec, share=0.9, length=128, batch_size=256)",
        "section(PhaseSpec, share=0.9, length=128, batch_size=128)",
        ("tests/test_recipe.py::test_the_papers_recipe",),
    ),
    Change(
        "bertjax/base/errors.py",
        "EXIT_STOPPED = 75",
        "EXIT_STOPPED = 74",
        (
            "tests/test_notebook.py",
            "tests/test_pretrain.py::test_a_signal_stops_the_run_and_it_goes_on_exactly",
        ),
    ),
    Change(
        "bertjax/base/files.py",
        "fcntl.LOCK_EX | (0 if",
        "fcntl.LOCK_SH | (0 if",
        ("tests/test_files.py", "tests/test_prepare.py::test_two_runs_on_one_folder"),
    ),
    Change(
        "bertjax/base/limits.py",
        "_WHOLE - 1)",
        "_WHOLE)",
        ("tests/test_limits.py",),
    ),
    Change(
        "bertjax/base/progress.py",
        "            initial=self._initial,\n            postfix",
        "            postfix",
        ("tests/test_progress.py", "tests/corpus/test_installed_docs.py"),
    ),
    Change(
        "bertjax/base/progress.py",
        "_SECONDS_BETWEEN_LINES = 10.0",
        "_SECONDS_BETWEEN_LINES = 1.0",
        ("tests/test_progress.py",),
    ),
    Change(
        "bertjax/base/progress.py",
        "        self._last_line = time.monotonic()\n        line",
        "        line",
        ("tests/test_progress.py",),
    ),
    # ----------------------------------------------------------------------------- text
    Change(
        "bertjax/text/domain_words.py",
        "counts[word] * (len(ids) - 1)",
        "counts[word] * len(ids)",
        ("tests/text/test_domain_words.py",),
    ),
    Change(
        "bertjax/text/pairs.py",
        "kept[0] > kept[1]",
        "kept[0] >= kept[1]",
        (
            "tests/text/test_pairs.py",
            "tests/tasks/test_classification.py",
            "tests/tasks/test_swag.py",
        ),
    ),
    Change(
        "bertjax/text/tokenizer.py",
        "if self._strip_accents and not text.isascii():",
        "if self._strip_accents and text.isascii():",
        ("tests/text/test_offsets.py", "tests/tasks/test_question_answering.py"),
    ),
    Change(
        "bertjax/text/byte_level.py",
        "self._library.encode_special_tokens = not special",
        "self._library.encode_special_tokens = False",
        ("tests/text/test_byte_level.py::test_ids_are_the_librarys",),
    ),
    Change(
        "bertjax/text/byte_level.py",
        'starts, side="right")',
        'starts, side="left")',
        ("tests/text/test_byte_level.py::test_what_becomes_one_character_is_one_span",),
    ),
    Change(
        "bertjax/text/byte_level.py",
        "return 0, _LETTER | _NUMBER | _OTHER",
        "return 0, 0",
        ("tests/text/test_byte_level.py::test_words_are_those_of_the_pre_tokenizer",),
    ),
    Change(
        "bertjax/text/vocabulary.py",
        "covered[-1:]) + 1",
        "covered[-1:])",
        ("tests/text/test_vocabulary.py",),
    ),
    # ----------------------------------------------------------------------------- corpus
    Change(
        "bertjax/corpus/build.py",
        "separator + sentence if spaces and sentences else sentence",
        "separator + sentence if spaces else sentence",
        ("tests/corpus/test_build.py::test_sentences_have_the_space_before_them",),
    ),
    Change(
        "bertjax/corpus/build.py",
        "if total < 2:",
        "if total <= 2:",
        ("tests/corpus/test_build.py",),
    ),
    Change(
        "bertjax/corpus/installed_docs.py",
        "letters >= 0.85 * len(paragraph)",
        "letters >= 0.8 * len(paragraph)",
        ("tests/corpus/test_installed_docs.py",),
    ),
    Change(
        "bertjax/corpus/sampling.py",
        "if is_held_out(number, held_out) or (size >= max_bytes and number >= -kept[0][0]):",
        "if size >= max_bytes and number >= -kept[0][0]:",
        ("tests/corpus/test_sampling.py",),
    ),
    Change(
        "bertjax/corpus/sources.py",
        "if offset >= stop:\n                return\n            if not",
        "if offset > stop:\n                return\n            if not",
        ("tests/corpus/test_sources.py",),
    ),
    Change(
        "bertjax/corpus/store.py",
        'starts, side="right") - 1\n',
        'starts, side="left") - 1\n',
        ("tests/corpus/test_store.py",),
    ),
    Change(
        "bertjax/programs/prepare.py",
        'unknown / total["tokens"]',
        'unknown / total["words"]',
        (
            "tests/test_prepare.py::test_held_out_text_teaches_no_vocabulary",
            "tests/test_prepare.py::test_learned_vocabulary_and_store",
        ),
    ),
    # ----------------------------------------------------------------------------- examples
    Change(
        "bertjax/examples/layout.py",
        "spans.is_random.astype(np.int32)",
        "(1 - spans.is_random).astype(np.int32)",
        ("tests/examples/test_batches.py", "tests/examples/test_spans.py"),
    ),
    Change(
        "bertjax/examples/draws.py",
        ">> np.uint64(12)) * 2.0**-52",
        ">> np.uint64(12)) * 2.0**-51",
        ("tests/examples/test_draws.py",),
    ),
    Change(
        "bertjax/examples/masking.py",
        "np.clip(count, 1, width)",
        "np.clip(count, 0, width)",
        ("tests/examples/test_masking.py",),
    ),
    Change(
        "bertjax/examples/masking.py",
        "places = (first + column) %",
        "places = (0 * first + column) %",
        ("tests/examples/test_masking.py::test_words_of_every_length_have_the_same_chance",),
    ),
    Change(
        "bertjax/examples/mixture.py",
        "block * self._places[source]",
        "block * _BLOCK",
        ("tests/examples/test_mixture.py",),
    ),
    Change(
        "bertjax/examples/packing.py",
        "np.where(number >= place, rest, 0)",
        "np.where(number > place, rest, 0)",
        ("tests/examples/test_packing.py::test_an_epoch_has_every_token_once",),
    ),
    Change(
        "bertjax/examples/packing.py",
        "times = min(gap // length, left)",
        "times = 1",
        ("tests/examples/test_packing.py::test_packing_is_best_fit",),
    ),
    Change(
        "bertjax/examples/packing.py",
        'keys("order of pieces", source, length, epoch)',
        'keys("order of pieces", source, length)',
        ("tests/examples/test_packing.py::test_pieces_of_a_length_meet_at_random",),
    ),
    Change(
        "bertjax/examples/packing.py",
        'keys("order of rows", source, epoch)',
        'keys("order of rows", source)',
        ("tests/examples/test_packing.py::test_rows_come_in_another_order_in_every_epoch",),
    ),
    Change(
        "bertjax/examples/corruption.py",
        "(documents[:, 1:] == documents[:, :-1]) & ",
        "",
        ("tests/examples/test_packing.py::test_left_to_right_predicts_within_documents",),
    ),
    Change(
        "bertjax/layers/positions.py",
        "column - jax.lax.cummax(jnp.where(begins, column, 0), axis=1)",
        "column",
        ("tests/model/test_packed.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/encoder.py",
        "None if spec.is_global(self.layer) else spec.local_attention // 2",
        "None if spec.is_global(self.layer) else spec.local_attention",
        ("tests/encoders/test_modernbert.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/encoder.py",
        "if before and self.layer else x",
        "if before else x",
        ("tests/encoders/test_modernbert.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/spec.py",
        "    global_rope_theta: float = 160_000.0",
        "    global_rope_theta: float = 10_000.0",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/spec.py",
        "    local_rope_theta: float = 10_000.0",
        "    local_rope_theta: float = 160_000.0",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/encoder.py",
        "by = of_global if spec.is_global(i) else of_local",
        "by = of_local if spec.is_global(i) else of_global",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/encoder.py",
        "activation(spec, y[:, :, 0]) * y[:, :, 1] if",
        "activation(spec, y[:, :, 1]) * y[:, :, 0] if",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/encoder.py",
        "outputs[-1] = self.final_norm(outputs[-1])",
        "self.final_norm(outputs[-1])",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/spec.py",
        "layer_norm_eps: float = 1e-5",
        "layer_norm_eps: float = 1e-6",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/encoders/bert/spec.py",
        "layer_norm_eps: float = 1e-12",
        "layer_norm_eps: float = 1e-6",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/encoders/bert/heads.py",
        "jnp.tanh(dense(sequence[:, 0]))",
        "dense(sequence[:, 0])",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/layers/activation.py",
        'approximate=spec.hidden_act == "gelu_tanh"',
        "approximate=True",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/attention/contract.py",
        "jnp.abs(places[:, None] - places) <= pattern.window",
        "jnp.abs(places[:, None] - places) < pattern.window",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/attention/local.py",
        "jnp.abs(distance) <= window",
        "jnp.abs(distance) < window",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/encoder.py",
        "Keys(tokens=input_mask, documents=documents)",
        "Keys(tokens=input_mask)",
        ("tests/model/test_numpy_reference.py",),
    ),
    Change(
        "bertjax/encoders/modernbert/encoder.py",
        "spec.initializer_range / (2 * spec.num_hidden_layers) ** 0.5",
        "spec.initializer_range / spec.num_hidden_layers**0.5",
        ("tests/encoders/test_modernbert.py::test_initial_values",),
    ),
    Change(
        "bertjax/encoders/modernbert/heads.py",
        "/ jnp.maximum(mask.sum(1), 1)",
        "/ sequence.shape[1]",
        ("tests/encoders/test_modernbert.py",),
    ),
    Change(
        "bertjax/layers/rotary.py",
        "jnp.concatenate([-second, first], -1)",
        "jnp.concatenate([second, -first], -1)",
        ("tests/encoders/test_modernbert.py",),
    ),
    Change(
        "bertjax/attention/local.py",
        "mask = mask & (own == ",
        "mask = mask & (own >= ",
        ("tests/model/test_local_attention.py", "tests/model/test_packed.py"),
    ),
    Change(
        "bertjax/encoders/bert/encoder.py",
        "Keys(input_mask, documents), deterministic, all_layers=False",
        "Keys(input_mask), deterministic, all_layers=False",
        ("tests/model/test_packed.py::test_other_documents_change_no_bit",),
    ),
    Change(
        "bertjax/examples/spans.py",
        'self._draws.below(surplus + 1, "boundary"',
        'self._draws.below(np.maximum(surplus, 1), "boundary"',
        ("tests/examples/test_spans.py::test_boundaries_of_chunks_are_uniform",),
    ),
    Change(
        "bertjax/examples/spans.py",
        "differ * np.where(gap.max(0) == 1, 2, 1)",
        "differ",
        ("tests/examples/test_spans.py",),
    ),
    Change(
        "bertjax/examples/spans.py",
        "sentences[following - replaces_a]",
        "sentences[following]",
        ("tests/examples/test_spans.py",),
    ),
    # ----------------------------------------------------------------------------- tasks
    Change(
        "bertjax/tasks/buckets.py",
        "self.steps_per_epoch = -(-len(lengths) // batch_size)",
        "self.steps_per_epoch = max(1, len(lengths) // batch_size)",
        ("tests/tasks/test_buckets.py",),
    ),
    Change(
        "bertjax/tasks/buckets.py",
        'return examples[np.argsort(-self._lengths[examples], kind="stable")]',
        "return examples",
        ("tests/tasks/test_buckets.py",),
    ),
    Change(
        "bertjax/tasks/choice.py",
        'f"{example.prompt} {choice}"',
        'f"{example.prompt}{choice}"',
        ("tests/tasks/test_swag.py",),
    ),
    Change(
        "bertjax/tasks/probabilities.py",
        "powers.sum(-1, keepdims=True)",
        "powers.sum(0, keepdims=True)",
        ("tests/tasks/test_classification.py", "tests/tasks/test_swag.py"),
    ),
    Change(
        "bertjax/tasks/conll.py",
        "number - len(rows), document",
        "number - len(rows) + 1, document",
        ("tests/tasks/test_conll.py",),
    ),
    Change(
        "bertjax/tasks/context.py",
        "ends[start] + room / 2",
        "ends[start] + room / 4",
        ("tests/tasks/test_context.py", "tests/tasks/test_tagging.py"),
    ),
    Change(
        "bertjax/tasks/encoded.py",
        "filled(np.where(there, label[tokens], IGNORED), IGNORED)",
        "filled(label[tokens], IGNORED)",
        ("tests/tasks/test_encoded.py", "tests/tasks/test_tagging.py"),
    ),
    Change(
        "bertjax/tasks/entity_scores.py",
        "sorted(of_gold | of_predicted)",
        "sorted(of_gold)",
        ("tests/tasks/test_entity_scores.py", "tests/tasks/test_conll.py"),
    ),
    Change(
        "bertjax/tasks/glue.py",
        "{min(max(_SCORES[0], prediction), _SCORES[1]):.3f}",
        "{prediction:.3f}",
        ("tests/tasks/test_glue.py",),
    ),
    Change(
        "bertjax/tasks/question_answering.py",
        "answer[1] >= begin + count",
        "answer[1] > begin + count",
        ("tests/tasks/test_question_answering.py",),
    ),
    Change(
        "bertjax/tasks/rows.py",
        "if value not in range(stop):",
        "if value not in range(stop + 1):",
        ("tests/tasks/test_swag.py", "tests/tasks/test_table.py"),
    ),
    Change(
        "bertjax/tasks/scores.py",
        'average="macro"',
        'average="weighted"',
        ("tests/tasks/test_scores.py", "tests/tasks/test_table.py"),
    ),
    Change(
        "bertjax/tasks/squad.py",
        "np.where(odds > threshold, unanswered, answered)",
        "np.where(odds < threshold, unanswered, answered)",
        ("tests/tasks/test_squad.py",),
    ),
    Change(
        "bertjax/tasks/squad.py",
        "[settings[EXACT_THRESHOLD], settings[NULL_THRESHOLD]]",
        "[settings[NULL_THRESHOLD], settings[NULL_THRESHOLD]]",
        ("tests/tasks/test_squad.py",),
    ),
    Change(
        "bertjax/tasks/probabilities.py",
        "softmax(logarithm(members).mean(0))",
        "softmax(members.mean(0))",
        ("tests/tasks/test_probabilities.py",),
    ),
    Change(
        "bertjax/tasks/question_answering.py",
        "if by == LOGITS else 0.0",
        "if by != LOGITS else 0.0",
        ("tests/tasks/test_question_answering.py::test_answers_of_several_models",),
    ),
    Change(
        "bertjax/tasks/tagging.py",
        "places = tokens + 1 + np.cumsum(",
        "places = tokens + np.cumsum(",
        ("tests/tasks/test_tagging.py",),
    ),
    Change(
        "bertjax/tasks/triviaqa.py",
        "(_in_word(text, start) or _in_word(text, start + len(each)))",
        "_in_word(text, start)",
        ("tests/test_triviaqa.py::test_the_place_of_an_answer",),
    ),
    Change(
        "bertjax/tasks/triviaqa.py",
        "prediction.answers[0].score > rival.answers[0].score",
        "prediction.answers[0].score < rival.answers[0].score",
        ("tests/test_triviaqa.py::test_scores_and_files_have_one_answer_a_question",),
    ),
    # ----------------------------------------------------------------------------- the model
    Change(
        "bertjax/objectives/objective.py",
        "if isinstance(weights, int) else weights.sum()",
        "if isinstance(weights, int) else jnp.float32(weights.size)",
        ("tests/objectives/test_losses.py",),
    ),
    Change(
        "bertjax/objectives/question_answering.py",
        'jnp.where(batch["input_mask"] > 0, outputs[side], jnp.finfo(jnp.float32).min)',
        "outputs[side]",
        (
            "tests/objectives/test_losses.py::test_padding_is_no_answer",
            "tests/objectives/test_losses.py",
        ),
    ),
    Change(
        "bertjax/attention/einsum.py",
        "gradients = d_query * _scale(qkv), *others",
        "gradients = d_query, *others",
        ("tests/model/test_attention.py",),
    ),
    Change(
        "bertjax/attention/einsum.py",
        "jnp.where(sees, d_weights - mean, 0)",
        "(d_weights - mean)",
        ("tests/model/test_attention.py",),
    ),
    Change(
        "bertjax/encoders/bert/embeddings.py",
        "self.position[:length]",
        "self.position[-length:]",
        (
            "tests/model/test_bert.py::test_padding_to_a_longer_length_changes_nothing",
            "tests/model/test_storage.py",
        ),
    ),
    Change(
        "bertjax/heads/bilstm.py",
        "(x[::-1], mask[::-1])[::-1]",
        "(x[::-1], mask)[::-1]",
        ("tests/model/test_bilstm.py",),
    ),
    Change(
        "bertjax/layers/dropout.py",
        "x * jnp.asarray(1 / (1 - rate), x.dtype)",
        "x",
        ("tests/model/test_dropout.py",),
    ),
    Change(
        "bertjax/attention/contract.py",
        "jnp.tril(jnp.ones((length, length), bool))",
        "jnp.tril(jnp.ones((length, length), bool), 1)",
        (
            "tests/model/test_bert.py::test_causal_attention_sees_nothing_later",
            "tests/model/test_attention.py",
        ),
    ),
    Change(
        "bertjax/heads/tasks.py",
        "[_last_token(forward, input_mask)[:, 0], backward[:, 0]]",
        "[forward[:, -1], backward[:, 0]]",
        ("tests/model/test_fine_tuning.py::test_a_class_is_read_from_the_whole_text",),
    ),
    Change(
        "bertjax/heads/tasks.py",
        "input_mask.sum(-1, keepdims=True) - 1",
        "input_mask.sum(-1, keepdims=True) - 2",
        (
            "tests/model/test_fine_tuning.py::test_left_to_right_the_last_token_is_pooled",
            "tests/model/test_fine_tuning.py::test_a_class_is_read_from_the_whole_text",
        ),
    ),
    Change(
        "bertjax/heads/tasks.py",
        "scores.reshape(input_ids.shape[:2])",
        "scores.reshape(input_ids.shape[1::-1]).T",
        (
            "tests/fine_tuning/test_predictor.py",
            "tests/model/test_fine_tuning.py",
        ),
    ),
    Change(
        "bertjax/layers/decoder.py",
        "jnp.arange(spec.padded_vocab_size) < spec.vocab_size",
        "jnp.arange(spec.padded_vocab_size) <= spec.vocab_size",
        (
            "tests/model/test_bert.py::test_vocabulary_padding_changes_nothing",
            "tests/model/test_storage.py",
        ),
    ),
    Change(
        "bertjax/heads/pretraining.py",
        "exact(spec), {axes.EMBED_OUT",
        "spec, {axes.EMBED_OUT",
        ("tests/model/test_fine_tuning.py::test_heads_compute_in_float32",),
    ),
    Change(
        "bertjax/layers/activation.py",
        'spec.hidden_act == "gelu_tanh"',
        'spec.hidden_act != "gelu_tanh"',
        ("tests/model/test_layers.py",),
    ),
    Change(
        "bertjax/encoders/bert/spec.py",
        "attention = layers * 2 * width * length",
        "attention = layers * width * length",
        ("tests/model/test_spec.py",),
    ),
    Change(
        "bertjax/encoders/storage.py",
        "[(0, padding)] + ",
        "[(padding, 0)] + ",
        ("tests/model/test_storage.py",),
    ),
    Change(
        "bertjax/optimizers/optimizer.py",
        'names[-1] not in ("bias", "scale")',
        'names[-1] != "bias"',
        ("tests/test_optimizer.py",),
    ),
    Change(
        "bertjax/optimizers/adam.py",
        "m / (jnp.sqrt(v) + eps)",
        "m / jnp.sqrt(v + eps)",
        ("tests/test_optimizer.py",),
    ),
    Change(
        "bertjax/optimizers/optimizer.py",
        "        optax.clip_by_global_norm(spec.clip_norm),\n",
        "",
        ("tests/test_optimizer.py",),
    ),
    Change(
        "bertjax/optimizers/adam.py",
        "jnp.maximum(1.0, rms)",
        "rms",
        ("tests/test_optimizer.py",),
    ),
    Change(
        "bertjax/optimizers/muon.py",
        "_RMS * max(sizes)",
        "_RMS * min(sizes)",
        ("tests/test_optimizer.py",),
    ),
    Change(
        "bertjax/optimizers/muon.py",
        "scale_by_muon(weight_dimension_numbers=numbers)",
        "scale_by_muon((3.4, -4.7, 2.0), weight_dimension_numbers=numbers)",
        ("tests/test_optimizer.py",),
    ),
    Change(
        "bertjax/optimizers/optimizer.py",
        "transforms[1:2] = [",
        "transforms[:2] = [",
        ("tests/test_optimizer.py",),
    ),
    Change(
        "bertjax/optimizers/adam.py",
        "jnp.maximum(v, eps**2)",
        "jnp.maximum(v, eps)",
        ("tests/test_optimizer.py",),
    ),
    Change(
        "bertjax/config.py",
        "learning_rate=8e-4, weight_decay=0.0125",
        "learning_rate=8e-4, weight_decay=1e-5",
        ("tests/test_optimizer.py",),
    ),
    Change(
        "bertjax/attention/kernel.py",
        "-(-pattern.window // LANES) * LANES",
        "max(1, pattern.window // LANES) * LANES",
        ("tests/model/test_kernel.py",),
    ),
    Change(
        "bertjax/runs/branch.py",
        "if not first <= step <= last:",
        "if not first < step <= last:",
        ("tests/test_decay_apart.py",),
    ),
    Change(
        "bertjax/optimizers/schedule.py",
        "jnp.sqrt(jnp.clip(decayed, 0.0, 1.0))",
        "jnp.clip(decayed, 0.0, 1.0)",
        ("tests/test_optimizer.py",),
    ),
    # ----------------------------------------------------------------------------- sharding
    Change(
        "bertjax/sharding/hosts.py",
        "except (KeyError, ValueError) as error:",
        "except KeyError as error:",
        ("tests/sharding/test_hosts.py",),
    ),
    Change(
        "bertjax/sharding/mesh.py",
        "if data < 1 or math.prod(",
        "if math.prod(",
        ("tests/sharding/test_mesh.py",),
    ),
    Change(
        "bertjax/sharding/placement.py",
        "if len(set(names) - {axes.LAYERS}) < 2:",
        "if len(names) < 2:",
        ("tests/sharding/test_rules.py",),
    ),
    Change(
        "bertjax/sharding/rules.py",
        "Layout(_all(_TENSOR), _SHARES)",
        "Layout(_all(_TENSOR))",
        (
            "tests/sharding/test_rules.py",
            "tests/test_golden_shardings.py::test_shardings_are_those_on_file"
            "[large_64_tensor_zero1]",
        ),
    ),
    Change(
        "bertjax/programs/show_sharding.py",
        "sharding.shard_shape(leaf.shape)",
        "leaf.shape",
        ("tests/test_show_sharding.py",),
    ),
    Change(
        "bertjax/compile_report/program.py",
        "times[used] += times[name] * count",
        "times[used] += count",
        ("tests/compile_report/test_program.py",),
    ),
    Change(
        "bertjax/compile_report/program.py",
        "min(of_operand, sum(parts)) if sliced",
        "sum(parts) if sliced",
        ("tests/compile_report/test_program.py",),
    ),
    Change(
        "bertjax/compile_report/bundles.py",
        "min(of_rows[place], stays)",
        "of_rows[place]",
        ("tests/compile_report/test_bundles.py",),
    ),
    Change(
        "bertjax/compile_report/report.py",
        '(2 if row.kind == "all-reduce" else 1)',
        "1",
        ("tests/compile_report/test_report.py",),
    ),
    Change(
        "bertjax/compile_report/report.py",
        "* self.chips * self.peak",
        "* self.peak",
        ("tests/compile_report/test_report.py",),
    ),
    Change(
        "bertjax/runs/branch.py",
        "if step < steps.stop]",
        "if step <= steps.stop]",
        ("tests/test_decay_apart.py",),
    ),
    Change(
        "bertjax/runs/assembly.py",
        "    phase = dataclasses.replace(phase, masking=recipe.masking)\n",
        "",
        ("tests/test_recipe.py",),
    ),
    Change(
        "bertjax/training/state.py",
        "self.decay * a + new * p",
        "new * a + self.decay * p",
        ("tests/training/test_average.py",),
    ),
    Change(
        "bertjax/runs/preflight.py",
        "usual = Counter(values).most_common(1)[0][0]",
        "usual = values[0]",
        ("tests/test_preflight.py",),
    ),
    # ----------------------------------------------------------------------------- training
    Change(
        "bertjax/training/checkpoint.py",
        "LatestN(keep)]",
        "LatestN(max(1, keep - 1))]",
        ("tests/training/test_checkpoint.py::test_retention",),
    ),
    Change(
        "bertjax/training/checkpoint.py",
        "astype(jnp.uint32).sum(dtype=jnp.uint32)",
        "astype(jnp.uint32).max()",
        ("tests/training/test_checkpoint.py::test_a_checksum_is_the_sum_of_the_words",),
    ),
    Change(
        "bertjax/training/checkpoint.py",
        "damage = self._wrong_checksums(loaded)",
        'damage = ""',
        ("tests/training/test_checkpoint.py::test_one_wrong_number_is_damage",),
    ),
    Change(
        "bertjax/training/checkpoint.py",
        "if _anywhere(bool(damage)):",
        "if damage:",
        ("tests/training/test_checkpoint.py::test_damage_on_one_host_counts_for_all",),
    ),
    Change(
        "bertjax/training/checkpoint.py",
        "process_allgather(np.array(condition)).any()",
        "process_allgather(np.array(condition)).all()",
        ("tests/training/test_checkpoint.py::test_a_condition_of_any_host_holds_anywhere",),
    ),
    Change(
        "bertjax/training/evaluation.py",
        "Feed(make, range(batches))",
        "Feed(make, range(1, batches + 1))",
        ("tests/training/test_evaluation.py",),
    ),
    Change(
        "bertjax/objectives/masked_lm.py",
        "if share not in (0.0, 1.0):",
        "if share != 0.0:",
        ("tests/objectives/test_losses.py",),
    ),
    Change(
        "bertjax/training/journal.py",
        "verdict.kind not in self._told",
        "True",
        ("tests/training/test_journal.py",),
    ),
    Change(
        "bertjax/training/verdict.py",
        "most=band.batch_tokens",
        "most=math.inf",
        ("tests/training/test_verdict.py",),
    ),
    Change(
        "bertjax/training/verdict.py",
        "_RISE = 0.5 ",
        "_RISE = 0.7 ",
        ("tests/training/test_verdict.py",),
    ),
    Change(
        "bertjax/training/verdict.py",
        "means += [sum(losses) / len(losses)] if",
        "means += [max(losses)] if",
        ("tests/training/test_verdict.py",),
    ),
    Change(
        "bertjax/runs/health.py",
        'max(curve["tokens"][-1] for curve in recorded)',
        'min(curve["tokens"][-1] for curve in recorded)',
        ("tests/test_health.py::test_a_band_reaches_as_far_as_its_longest_curve",),
    ),
    Change(
        "bertjax/runs/health.py",
        "if share >= _SAME_WORDS]",
        "if share >= 0.0]",
        ("tests/test_health.py::test_words_go_before_the_loss_without_context",),
    ),
    Change(
        "bertjax/corpus/frequencies.py",
        "min(share, others.get(word, 0.0))",
        "others.get(word, 0.0)",
        ("tests/corpus/test_frequencies.py",),
    ),
    Change(
        "bertjax/runs/health.py",
        'np.array(curve["loss"]) + difference',
        'np.array(curve["loss"])',
        ("tests/test_health.py",),
    ),
    Change(
        "bertjax/training/feed.py",
        "if len(waiting) > self._ahead:",
        "if len(waiting) >= self._ahead:",
        ("tests/training/test_feed.py",),
    ),
    Change(
        "bertjax/training/journal.py",
        'if row["step"] <= step]',
        'if row["step"] < step]',
        ("tests/training/test_journal.py",),
    ),
    Change(
        "bertjax/training/loop.py",
        '{"step": step, "window": window}',
        '{"step": step, "window": {}}',
        ("tests/training/test_loop.py",),
    ),
    Change(
        "bertjax/training/loop.py",
        "float(session.schedule(step - 1))",
        "float(session.schedule(step))",
        ("tests/training/test_loop.py",),
    ),
    Change(
        "bertjax/training/step.py",
        "{name: sums[name][0] / count for name, count in counts.items()}",
        "{name: sums[name][0] / jnp.maximum(sums[name][1], 1.0) for name in counts}",
        ("tests/training/test_step.py",),
    ),
    Change(
        "bertjax/training/step.py",
        "weights, part, counts, jax.random.fold_in(key, number))",
        "weights, part, counts, key)",
        ("tests/training/test_step.py",),
    ),
    Change(
        "bertjax/training/moves.py",
        "if splits and tuple(split) == splits[-1] == (None, None):",
        "if splits and tuple(split) == (None, None):",
        ("tests/training/test_moves.py",),
    ),
    Change(
        "bertjax/layers/embedding.py",
        "whole = jax.ShapeDtypeStruct(like.shape[1:], jnp.float32)",
        "whole = jax.ShapeDtypeStruct(like.shape[1:], like.dtype)",
        ("tests/model/test_embedding.py",),
    ),
    Change(
        "bertjax/training/compiled_step.py",
        "jax.random.fold_in(dropout_key(seed, step), number)",
        "dropout_key(seed, step)",
        ("tests/training/test_step.py",),
    ),
    Change(
        "bertjax/training/compiled_step.py",
        "counts = whole_counts({name: sum(part[name] for part in each) for name in each[0]})",
        "counts = whole_counts(each[0])",
        ("tests/training/test_step.py",),
    ),
    # -------------------------------------------------------------------- models of others
    Change(
        "bertjax/interop/hugging_face.py",
        "sorted(labels, key=int)",
        "sorted(labels)",
        (
            "tests/interop/test_hugging_face.py::test_more_than_ten_classes",
            "tests/fine_tuning/test_family.py",
        ),
    ),
    Change(
        "bertjax/base/json_kinds.py",
        "(kind is float and type(value) is int)",
        "(kind in (int, float) and isinstance(value, int | float))",
        ("tests/interop/test_hugging_face.py::test_fields_of_another_type",),
    ),
    Change(
        "bertjax/encoders/bert/hugging_face.py",
        'enumerate(("query", "key", "value"))',
        'enumerate(("key", "query", "value"))',
        ("tests/model/test_names.py",),
    ),
    Change(
        "bertjax/encoders/bert/hugging_face.py",
        r'return re.sub(r"\.LayerNorm\.beta$", ".LayerNorm.bias", name)',
        "return name",
        ("tests/model/test_names.py",),
    ),
    Change(
        "bertjax/interop/pretrained.py",
        'hashlib.sha256(f"{self.spec} {self.tokenizer.identity}".encode())',
        "hashlib.sha256(self.tokenizer.identity.encode())",
        (
            "tests/interop/test_hugging_face.py::test_the_identity_is_of_all_that_determines_the_function",
            "tests/features/test_activations.py::test_computed_once",
        ),
    ),
    Change(
        "bertjax/interop/sentencepiece_model.py",
        "(-scores[ids[piece]], ids[piece])",
        "(scores[ids[piece]], ids[piece])",
        ("tests/interop/test_tokenizer_files.py::test_sentencepiece_written_and_read",),
    ),
    Change(
        "bertjax/interop/serving.py",
        "{name: np.ascontiguousarray(array) for name, array in weights.items()}",
        "dict(weights)",
        ("tests/interop/test_serving.py::test_weights_in_any_order_of_memory",),
    ),
    Change(
        "bertjax/interop/tokenizer_files.py",
        "[SEP]:0 $B:1 [SEP]:1",
        "[SEP]:0 $B:1 [SEP]:0",
        (
            "tests/interop/test_tokenizer_files.py::test_files_of_a_written_folder",
            "tests/interop/test_tokenizer_files.py",
        ),
    ),
    Change(
        "bertjax/programs/convert.py",
        'if results.get("step") == step:',
        "if results:",
        (
            "tests/test_convert.py::test_the_card_prefers_an_evaluation",
            "tests/test_convert.py::test_the_card_holds_recipe_and_figures",
        ),
    ),
    Change(
        "bertjax/runs/initialize.py",
        '"attention_probs_dropout_prob", "causal"),',
        '"attention_probs_dropout_prob", "causal", "layer_norm_eps"),',
        (
            "tests/test_initialize.py::test_what_the_weights_decide",
            "tests/test_initialize.py::test_it_goes_on_where_the_weights_are",
        ),
    ),
    Change(
        "bertjax/objectives/left_to_right.py",
        "kind = kinds.CAUSAL_LM",
        "kind = kinds.MASKED_LM",
        ("tests/test_convert.py::test_a_run_is_exported_and_read_back",),
    ),
    # ----------------------------------------------------------------------------- features
    Change(
        "bertjax/features/activations.py",
        "tuple(range(1, depth + 1))",
        "tuple(range(depth + 1))",
        (
            "tests/features/test_activations.py::test_choices_of_table_7",
            "tests/features/test_activations.py",
        ),
    ),
    Change(
        "bertjax/features/compute.py",
        "jnp.where(groups[..., None] == 0, x, -jnp.inf).max(1, keepdims=True)",
        "x.max(1, keepdims=True)",
        ("tests/test_extract_features.py::test_as_one_text_alone",),
    ),
    Change(
        "bertjax/features/texts.py",
        "EncodedText(array, 2 + kept[0], groups",
        "EncodedText(array, 1 + kept[0], groups",
        (
            "tests/test_extract_features.py::test_segments_and_cutting_of_pairs",
            "tests/test_extract_features.py::test_as_one_text_alone",
        ),
    ),
    Change(
        "bertjax/programs/extract_features.py",
        "deque(mine, maxlen=0)",
        "pass",
        ("tests/test_extract_features.py::test_it_goes_on_where_it_was_stopped",),
    ),
    Change(
        "bertjax/programs/compare_words.py",
        "np.concatenate(vectors).mean(0)",
        "np.mean([each.mean(0) for each in vectors], 0)",
        ("tests/test_compare_words.py",),
    ),
    # ----------------------------------------------------------------------------- pre-training
    Change(
        "bertjax/runs/recipe.py",
        "            short_probability=self.short_probability,\n",
        "",
        ("tests/test_recipe.py",),
    ),
    Change(
        "bertjax/runs/run_folder.py",
        "begun.get(key, _BEFORE.get(key))",
        "begun.get(key)",
        (
            "tests/test_bad_input.py::test_a_run_without_a_newer_key",
            "tests/test_initialize.py::test_a_run_without_the_key_init_from",
        ),
    ),
    Change(
        "bertjax/programs/pretrain.py",
        "recipe.keep_checkpoints + 1)",
        "recipe.keep_checkpoints)",
        ("tests/test_preflight.py::test_the_preflight_comes_before_the_compile",),
    ),
    Change(
        "bertjax/programs/pretrain.py",
        "return 0 if complete else EXIT_STOPPED",
        "return 0",
        ("tests/test_pretrain.py::test_a_signal_stops_the_run_and_it_goes_on_exactly",),
    ),
    Change(
        "bertjax/programs/evaluate.py",
        "TokenStore.open(corpora, HELDOUT, ",
        'TokenStore.open(corpora, "train", ',
        ("tests/test_evaluate.py",),
    ),
    Change(
        "bertjax/programs/fill_mask.py",
        'batch["input_mask"][row, : lengths[number]] = 1',
        'batch["input_mask"][row, : lengths[number] + 1] = 1',
        ("tests/test_fill_mask.py",),
    ),
    # ----------------------------------------------------------------------------- fine-tuning
    Change(
        "bertjax/fine_tuning/data.py",
        '"dev": digests[first]}',
        '"dev": digests[TRAIN]}',
        ("tests/test_finetune.py::test_other_labels_of_dev_are_other_data",),
    ),
    Change(
        "bertjax/fine_tuning/family.py",
        "longest if given is None else given",
        "longest",
        ("tests/fine_tuning/test_family.py",),
    ),
    Change(
        "bertjax/fine_tuning/model.py",
        "row[: encoded.starts[example + 1] - encoded.starts[example]]",
        "row",
        ("tests/fine_tuning/test_predictor.py",),
    ),
    Change(
        "bertjax/fine_tuning/recipe.py",
        "range(self.seed, self.seed + grid.restarts)",
        "range(grid.restarts)",
        ("tests/fine_tuning/test_task_recipe.py",),
    ),
    Change(
        "bertjax/fine_tuning/search.py",
        "statistics.stdev(values)",
        "statistics.pstdev(values)",
        ("tests/fine_tuning/test_search.py::test_means_are_over_what_all_trials_have",),
    ),
    Change(
        "bertjax/fine_tuning/trials.py",
        "size, trial.epochs, trial.seed, rows)",
        "size, trial.epochs, self._recipe.seed, rows)",
        (
            "tests/fine_tuning/test_trials.py::test_all_trials_share_what_is_compiled",
            "tests/test_finetune.py::test_trials_that_are_done_are_not_run_again",
        ),
    ),
    Change(
        "bertjax/interop/pretrained.py",
        'dict.fromkeys(("pooler", *ARCHITECTURES[kind].parts(self.spec, bilstm)))',
        "dict.fromkeys(ARCHITECTURES[kind].parts(self.spec)[:1])",
        (
            "tests/test_initialize.py::"
            "test_an_output_layer_goes_on_only_for_the_same_kind_and_classes",
            "tests/test_finetune.py::test_each_family_learns_and_writes_its_files[CoLA]",
            "tests/test_finetune.py::test_the_model_is_that_of_the_best_trial",
        ),
    ),
    Change(
        "bertjax/interop/pretrained.py",
        '("classifier" not in parts or self.classes == classes)',
        "True",
        (
            "tests/test_initialize.py::"
            "test_an_output_layer_goes_on_only_for_the_same_kind_and_classes",
        ),
    ),
    Change(
        "bertjax/programs/finetune_glue.py",
        "            if code:\n                return code\n",
        "            pass\n",
        ("tests/test_finetune_glue.py",),
    ),
    Change(
        "bertjax/programs/finetune_features.py",
        'free = (*finetune_task.FREE, "features.choices")',
        "free = finetune_task.FREE",
        ("tests/test_finetune_features.py::test_another_choice_takes_the_stored_activations",),
    ),
    Change(
        "bertjax/programs/ensemble.py",
        "task.family.combine([each[split] for each in found]",
        "task.family.combine([found[0][split] for each in found]",
        ("tests/test_ensemble.py::test_classes_by_hand",),
    ),
    Change(
        "bertjax/programs/predict.py",
        "enumerate(texts, start=1)",
        "enumerate(texts)",
        ("tests/test_predict.py::test_a_line_that_cannot_be_used",),
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="files with TEXT in their path")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="gets what was found")
    parser.add_argument("--checkout", type=Path, default=REPOSITORY, metavar="DIR")
    parser.add_argument("--slow", action="store_true", help="with the tests marked slow")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    changes = [change for change in CHANGES if options.only in change.file]
    tests = {change: _tests_there(checkout, change) for change in changes}
    found = []
    with tempfile.TemporaryDirectory(prefix="broken-") as folder:
        copy = _copied(checkout, Path(folder))
        for change in changes:
            start = time.monotonic()
            caught_by = _notices(copy, change, tests[change], options.slow)
            seconds = round(time.monotonic() - start, 1)
            about = {"file": change.file, "old": change.old, "new": change.new}
            found.append({**about, "caught_by": caught_by, "seconds": seconds})
            verdict = f"caught by {caught_by} in {seconds:.0f} s" if caught_by else "SURVIVED"
            print(f"{_told(change)}: {verdict}", flush=True)
    survived = sum(not each["caught_by"] for each in found)
    print(f"{len(found)} changes, {len(found) - survived} caught, {survived} survived")
    if options.output:
        options.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.exit(bool(survived))


def _told(change: Change) -> str:
    old, new = (" ".join(text.split())[:60] for text in (change.old, change.new))
    return f"{change.file}: {old!r} -> {new!r}"


def _tests_there(checkout: Path, change: Change) -> list[str]:
    """The tests of a change that exist in the checkout; exits if a change does not fit its file.

    An older checkout may lack tests.
    """
    file, there = checkout / change.file, []
    count = file.read_text(encoding="utf-8").count(change.old) if file.exists() else 0
    if count != 1:
        sys.exit(f"{_told(change)}: the old text stands {count} times in {file}, not once")
    for test in change.tests:
        path, _, name = test.partition("::")
        text = (checkout / path).read_text(encoding="utf-8") if (checkout / path).exists() else ""
        if text and (not name or f"def {name.partition('[')[0]}(" in text):
            there.append(test)
    if not there:
        sys.exit(f"{_told(change)}: none of its tests is in {checkout}")
    return there


def _copied(checkout: Path, folder: Path) -> Path:
    """Copies all files that git does not ignore, with the shared data beside them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
    copy = folder / "main"
    for name in filter(None, names.stdout.split("\0")):
        if (checkout / name).is_file():  # git also lists deleted files
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, copy / name)
    if (checkout.parent / "shared").exists():
        (folder / "shared").symlink_to(checkout.parent / "shared")
    return copy


def _notices(copy: Path, change: Change, tests: list[str], slow: bool) -> str | None:
    """The first test that fails with the change; None if all pass."""
    file = copy / change.file
    whole = file.read_bytes()
    file.write_bytes(whole.replace(change.old.encode(), change.new.encode()))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header"]
    environment = {key: value for key, value in os.environ.items() if slow or key != "CI"}
    result = subprocess.run(
        [*command, *tests, *(["--slow"] if slow else [])],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    file.write_bytes(whole)
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", result.stdout, re.MULTILINE)
    if result.returncode == 0 and " passed" in result.stdout:
        return None
    if result.returncode in (1, 2) and failed:  # 2: a file of tests cannot be imported
        return failed[-1]
    # No test ran, or the call of pytest was wrong.
    sys.exit(f"{_told(change)}: pytest ended with {result.returncode}:\n{result.stdout[-3000:]}")


if __name__ == "__main__":
    main()

"""Scores of decisions by similarity, in percent: which text is nearer, which belong together."""

import numpy as np


def triplet_accuracy(positive: np.ndarray, negative: np.ndarray) -> float:
    """The percentage of triplets whose positive text is the nearer one; ties count half."""
    return 100 * float(np.mean((positive > negative) + 0.5 * (positive == negative)))


def pair_scores(labels: np.ndarray, similarities: np.ndarray) -> dict[str, float]:
    """Scores pairs that belong together (label 1) or not (0), each metric at its best threshold.

    A pair is taken to belong together if its similarity is at least the threshold. The metrics are
    those of sentence-transformers' BinaryClassificationEvaluator, but pairs of equal similarity
    always get the same decision, and a threshold may accept all pairs or none.

    Returns:
      "accuracy" and "f1", the highest ones; "accuracy_threshold" and "f1_threshold", where they are
      reached (the highest of equally good ones); "precision" and "recall" at the threshold of F1;
      and "average_precision", as scikit-learn's. If no pair belongs together, all but the accuracy
      are 0.
    """
    order = np.argsort(-similarities, kind="stable")
    labels, ranked = labels[order], similarities[order].astype(float)
    positives = int(labels.sum())
    # A cut accepts the first n pairs; it is never between equal similarities.
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(ranked)) + 1, [len(ranked)]])
    right = np.concatenate([[0], np.cumsum(labels)])[cuts]
    accuracy = (right + len(labels) - positives - (cuts - right)) / len(labels)
    f1 = 2 * right / np.maximum(cuts + positives, 1)
    precision, recall = right / np.maximum(cuts, 1), right / max(positives, 1)
    thresholds = np.concatenate(
        [[ranked[0] + 1], (ranked[cuts[1:-1] - 1] + ranked[cuts[1:-1]]) / 2, [ranked[-1] - 1]]
    )
    best, best_f1 = np.argmax(accuracy), np.argmax(f1)
    return {
        "accuracy": 100 * float(accuracy[best]),
        "accuracy_threshold": float(thresholds[best]),
        "f1": 100 * float(f1[best_f1]),
        "f1_threshold": float(thresholds[best_f1]),
        "precision": 100 * float(precision[best_f1]),
        "recall": 100 * float(recall[best_f1]),
        "average_precision": 100 * float(np.sum(np.diff(recall) * precision[1:])),
    }

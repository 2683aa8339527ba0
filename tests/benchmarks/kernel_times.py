"""Where the time of a device goes, by kind of kernel, from a trace."""

import re
from collections import Counter
from typing import Any

# Kinds of kernels by their names, the first that fits; and all others.
KINDS = {
    "attention": "flash|fmha|attn|attention",
    "products": "gemm|nvjet|cutlass|xmma|wgmma|cublas|dot",
    "copies": "transpose|copy|memcpy|memset|concatenate|slice",
    "reductions": "reduce",
    "elementwise": "fusion",
}


def by_kind(events: list[dict[str, Any]], updates: int) -> dict[str, Any]:
    """The milliseconds of an update by kind of kernel, and the largest kernels.

    Args:
      events: those of a trace in the format of Chrome, as jax.profiler writes them. On a GPU the
        threads are its streams; on a CPU the operations of XLA say of which program they are.
    """
    named = [event for event in events if event.get("ph") == "M"]
    processes = {e["pid"]: e["args"]["name"] for e in named if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in named if e["name"] == "thread_name"}
    gpus = {process for process, name in processes.items() if "GPU" in name}
    spent: Counter[str] = Counter()
    for event in (event for event in events if event.get("ph") == "X"):
        thread = threads.get((event["pid"], event["tid"]), "")
        is_operation = "hlo_op" in event.get("args", {})
        if event["pid"] in gpus and "Stream" in thread if gpus else is_operation:
            spent[event["name"]] += event["dur"] / 1e3 / updates
    kinds = dict.fromkeys((*KINDS, "others"), 0.0)
    for name, milliseconds in spent.items():
        fits = (kind for kind, words in KINDS.items() if re.search(words, name, re.IGNORECASE))
        kinds[next(fits, "others")] += milliseconds
    return {"all_kernels": spent.total(), **kinds, "largest": dict(spent.most_common(20))}

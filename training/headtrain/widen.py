"""Changes the draft ids of a saved head: output rows, and in a checkpoint the optimizer's moments, for those that
are new."""
import torch


def exchange(shape, state, ids, uses, output):
    """(shape, state, number of new ids) of a head that drafts exactly these ids, ascending; what it knows of them stays.

    uses [n_vocab], output [n_vocab, n_embd]: as for `widen`, and a new row begins as it does there.
    """
    old, ids = state["d2t"], torch.as_tensor(ids)
    known = torch.isin(ids, old)
    few = torch.as_tensor(uses)[old].argsort(stable=True)[:max(1, len(old) // 8)]
    rows = output[ids] + (state["lm_head.weight"][few] - output[old[few]]).mean(0)
    rows[known] = state["lm_head.weight"][torch.searchsorted(old, ids[known])]
    return dict(shape, n_draft=len(ids)), dict(state, **{"d2t": ids, "lm_head.weight": rows}), int((~known).sum())


def widen(saved, ids, uses, output, which):
    """saved: train.py's checkpoint, changed in place. ids: draft ids wanted, ascending; those that it has stay beside them.

    uses [n_vocab]: how often each token occurs. output [n_vocab, n_embd]: the target's output rows. which: the output
    rows' number among the optimizer's parameters. A new row begins as the target's, moved as the head's least used rows were
    moved by training, so that it does not win where they have learned not to; its moments are theirs, on average.
    """
    head = saved["head"]
    old = head["d2t"]
    new = torch.tensor(sorted(set(ids.tolist()) | set(old.tolist())))
    at = torch.searchsorted(new, old)
    fresh = torch.ones(len(new), dtype=torch.bool)
    fresh[at] = False
    few = torch.as_tensor(uses)[old].argsort(stable=True)[:max(1, len(old) // 8)]
    rows = output[new].clone()
    rows[fresh] += (head["lm_head.weight"][few] - output[old[few]]).mean(0)
    rows[at] = head["lm_head.weight"]
    moments = saved["optimizer"]["state"].get(which, {})
    for name in ("exp_avg", "exp_avg_sq"):
        if name in moments:
            wide = moments[name][few].mean(0).expand(len(new), -1).clone() if name == "exp_avg_sq" else torch.zeros_like(rows)
            wide[at] = moments[name]
            moments[name] = wide
    head["d2t"], head["lm_head.weight"] = new, rows
    saved["shape"] = dict(saved["shape"], n_draft=len(new))
    return int(fresh.sum())

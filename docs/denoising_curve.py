"""Draw PSNR against training time, from the results of two benchmarks.

python docs/denoising_curve.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"

#: Curves: benchmark, name of its curve, label, colour.
CURVES = (
    ("denoise_quality", "curve of 180 s", "hushpore, defaults", "#3b7ea1"),
    ("denoise_rival_curve", "curve", "CAREamics N2V2, its defaults", "#c8553d"),
)

_INK = "#1f2933"


def figures(name: str) -> dict[str, Any]:
    """Return the figures of a benchmark."""
    text = (RESULTS / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)["figures"]
    return found


def draw(path: Path) -> None:
    """Write the picture."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for benchmark, name, label, colour in CURVES:
        if not (RESULTS / f"{benchmark}.json").exists():
            continue
        curve = figures(benchmark)[name]
        seconds = [int(at.removesuffix(" s")) for at in curve]
        values = [point["psnr"] for point in curve.values()]
        axes.plot(seconds, values, "o-", color=colour, label=label, markersize=4)
    quality = figures("denoise_quality")
    for name, marker in (("symmetries", "^"), ("symmetries and detail", "s")):
        for budget in ("30 s", "180 s"):
            axes.plot(
                quality[budget]["seconds"], quality[budget]["psnr"][name], marker,
                color="#3b7ea1", markerfacecolor="none",
                label=f"hushpore with {name}" if budget == "30 s" else None,
            )  # fmt: skip
    known = figures("denoise_rivals")["non-local means"]["psnr"]
    axes.axhline(known, color=_INK, linewidth=0.8, linestyle=":")
    axes.annotate(
        "non-local means, noise known", (2, known), (0, 3), textcoords="offset points",
        color=_INK, fontsize=8,
    )  # fmt: skip
    axes.set(xlabel="training [s]", ylabel="PSNR on Set12 [dB]", xlim=(0, 190), ylim=(19.5, 29.5))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    draw(HERE / "images" / "denoising-curve.png")

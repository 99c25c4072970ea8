"""How far the best of some trials is below the optimum: TPE, Halton and random points: `python benchmarks/samplers.py`.

In an environment with Optuna and SciPy, which eopipe does not need. The score is a smooth response to four settings
with noise.
"""

import warnings

import numpy as np
import optuna
from scipy.stats import qmc

SETTINGS, BATCH, SEARCHES = 4, 4, 100
SPAN, NOISE = 0.15, 0.005
WEIGHTS = np.array([1.0, 0.5, 0.2, 0.05])


def regret(sampler: str, trials: int, seed: int) -> float:
    """Search once; how far the true score of the trial with the best measured one is below the optimum."""
    dice = np.random.default_rng(seed)
    optimum, weights = dice.uniform(0.1, 0.9, SETTINGS), WEIGHTS[dice.permutation(SETTINGS)]

    def loss(point: np.ndarray) -> float:
        return SPAN * float((weights * (point - optimum) ** 2).sum())

    points, scores = [], []
    if sampler in ("halton", "random"):
        engine = qmc.Halton(SETTINGS, seed=seed) if sampler == "halton" else None
        points = list(engine.random(trials) if engine else dice.uniform(size=(trials, SETTINGS)))
        scores = [NOISE * dice.normal() - loss(point) for point in points]
    else:
        first = int(sampler.removeprefix("tpe"))
        tpe = optuna.samplers.TPESampler(seed=seed, n_startup_trials=first, constant_liar=True, multivariate=True)
        study = optuna.create_study(direction="maximize", sampler=tpe)
        for start in range(0, trials, BATCH):
            suggested = [study.ask() for _ in range(min(BATCH, trials - start))]
            batch = [np.array([trial.suggest_float(str(n), 0, 1) for n in range(SETTINGS)]) for trial in suggested]
            for trial, point in zip(suggested, batch, strict=True):
                points.append(point)
                scores.append(NOISE * dice.normal() - loss(point))
                study.tell(trial, scores[-1])
    return loss(points[int(np.argmax(scores))])


def main() -> None:
    """Print a table."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    samplers = ("random", "halton", "tpe10", "tpe4")
    print(f"| trials | {' | '.join(samplers)} |\n|---:{'|---:' * len(samplers)}|")
    for trials in (12, 24, 48):
        cells = [np.array([regret(name, trials, seed) for seed in range(SEARCHES)]) for name in samplers]
        row = " | ".join(f"{values.mean():.4f} ± {values.std(ddof=1) / SEARCHES**0.5:.4f}" for values in cells)
        print(f"| {trials} | {row} |", flush=True)


if __name__ == "__main__":
    main()

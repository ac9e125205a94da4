"""Time of the other libraries' aggregators on Python objects. ``peers.py`` runs this in the libraries' environment.

    python peers_worker.py direct|oue VALUES.npy SIZE RUNS

Prints {library: median seconds of processor time} as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings

import numpy as np

warnings.simplefilter("ignore")
EPSILON = 1.0


def aggregators(mechanism: str, size: int) -> dict:
    """Library → function from a list of reports to frequencies."""
    from ldp_toolbox.protocols.frequency.grr import GeneralizedRandomizedResponse
    from ldp_toolbox.protocols.frequency.ue import UnaryEncoding
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI
    from pure_ldp.frequency_oracles.direct_encoding import DEServer
    from pure_ldp.frequency_oracles.unary_encoding import UEServer

    def pure_ldp(reports: list) -> object:
        server = DEServer(EPSILON, size) if mechanism == "direct" else UEServer(EPSILON, size, use_oue=True)
        server.aggregate_all(reports)
        return server.estimate_all(range(1, size + 1), suppress_warnings=True)

    if mechanism == "direct":
        return {
            "multi-freq-ldpy": lambda reports: GRR_Aggregator_MI(reports, size, EPSILON),
            "pure-ldp": pure_ldp,
            "ldp-toolbox": GeneralizedRandomizedResponse(size, EPSILON).estimate,
        }
    return {
        "multi-freq-ldpy": lambda reports: UE_Aggregator_MI(reports, EPSILON, True),
        "pure-ldp": pure_ldp,
        "ldp-toolbox": UnaryEncoding(size, EPSILON, True).estimate,
    }


def main() -> None:
    """Time each library on the same reports."""
    mechanism, path, size, runs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    values = np.load(path)
    reports = values.tolist() if mechanism == "direct" else [row.astype(np.float64) for row in values]
    times: dict[str, list[float]] = {}
    for _ in range(runs):
        for name, estimate in aggregators(mechanism, size).items():
            began = time.process_time()
            estimate(reports)
            times.setdefault(name, []).append(time.process_time() - began)
    json.dump({name: statistics.median(taken) for name, taken in times.items()}, sys.stdout)


if __name__ == "__main__":
    main()

"""The three panels under README's main picture, with one seed; ``pytest -m release`` runs them."""

import pytest

from edgefl import load_scenario, simulate

# At the end of the run: virtual seconds, MB down and up, and accuracy in percent.
EXPECTED = {
    "fedadc_overlap": {
        "fedavg": (51.75, 338.9, 95.0),
        "slowmo": (51.75, 338.9, 98.0),
        "fedadc": (60.45, 486.8, 98.7),
        "fedadc-overlap": (52.19, 486.8, 98.7),
    },
    "fedalign_flops": {
        "fedavg": (29.19, 412.6, 96.7),
        "fedalign": (30.38, 318.6, 90.7),
        "gradaug": (27.56, 156.8, 85.2),
        "moon": (28.79, 293.3, 81.0),
        "fedprox": (30.88, 377.9, 94.8),
    },
    "fedbr_blocks": {
        "fedavg": (111.18, 320.8, 93.0),
        "one-block": (120.00, 305.6, 95.5),
        "two-blocks": (113.52, 321.2, 87.7),
        "random": (120.00, 320.8, 91.2),
        "gmbs": (120.00, 316.8, 91.3),
        "gmbs-scaled": (120.00, 303.0, 91.7),
        "optimal": (87.18, 321.7, 86.7),
        "one-block-no-paths": (120.00, 305.6, 94.8),
    },
}


@pytest.mark.release
@pytest.mark.parametrize("name", EXPECTED)
def test_panels_under_the_main_picture(name, tmp_path):
    methods = simulate(load_scenario(name, {"seeds": [0]}), out=tmp_path / name).summary["methods"]
    for label, (seconds, megabytes, accuracy) in EXPECTED[name].items():
        (found,) = methods[label]
        assert found["seconds"] == pytest.approx(seconds, rel=1e-3), label
        assert sum(found["bytes"][way] for way in ("down", "up")) / 1e6 == pytest.approx(megabytes, rel=1e-3), label
        # Processors round differently.
        assert 100 * found["accuracy"]["final"] == pytest.approx(accuracy, abs=2), label
    if name == "fedadc_overlap":
        assert methods["fedadc"][0]["accuracy"] == methods["fedadc-overlap"][0]["accuracy"]

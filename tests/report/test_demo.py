from typing import Any

from objectaware.report.tables import best_baseline, demo_tables, markdown_report, terminal_report


def _cells(soft: float, crf: float) -> dict[str, dict[str, float]]:
    return {"soft": {"miou": soft, "mask_share": 0.3}, "crf": {"miou": crf, "mask_share": 0.4}}


ONE: dict[str, Any] = {
    "seed": 0,
    "localization": {
        "contracam": {"1": _cells(0.5, 0.7123), "10": _cells(0.4, 0.3)},
        "without_negative_signal_removal": {"1": _cells(0.3, 0.9), "10": _cells(0.3, 0.9)},
        "untrained": {"1": _cells(0.2, 0.21), "10": _cells(0.2, 0.22)},
        "baselines": {"center map": _cells(0.9, 0.5), "full image": _cells(0.25, 0.25)},
    },
    "ratio_to_best_baseline": {"1": 1.4246, "10": 0.6},
    "background": {
        "baseline": {"original": 60.0, "bg_gap": 30.0},
        "background_mixup": {"original": 50.0, "bg_gap": 12.5},
        "background_hardmix": {"original": 61.0, "bg_gap": 20.0},
    },
    "seconds": 300.0,
    "peak_memory_mib": 2000.0,
}
POLICIES = ("background_mixup", "background_hardmix")


def test_a_table_shows_each_training_and_what_it_changed() -> None:
    localization, background = demo_tables(ONE)
    assert localization.rows["contracam T1"] == {
        "soft mIoU": 0.5,
        "soft share": 0.3,
        "CRF mIoU": 0.7123,
        "CRF share": 0.4,
    }
    assert localization.rows["center map"]["CRF mIoU"] == 0.5
    assert background.rows["bg_gap"] == {
        "baseline": 30.0,
        "background_mixup": 12.5,
        "background_hardmix": 20.0,
        "background_mixup change": -17.5,
        "background_hardmix change": -10.0,
    }


def test_the_best_baseline_is_the_best_after_the_crf() -> None:
    """Masks of our own network, without the removal of negative signals, are not a baseline."""
    assert best_baseline(ONE["localization"]) == ("center map", 0.5)
    untrained = {"1": _cells(0.1, 0.6)}
    assert best_baseline({**ONE["localization"], "untrained": untrained}) == ("untrained T1", 0.6)


def test_reports_hold_the_numbers() -> None:
    page = markdown_report(ONE, variant="single-object")
    for report in (terminal_report(ONE), page):
        assert "0.712" in report
        assert "by iterations: 1.42 at 1, 0.60 at 10. The best baseline is center map (0.500)." in report
    assert "-17.5" in page
    assert "scenes" in page


def test_several_seeds_show_mean_and_spread() -> None:
    other = {**ONE, "seed": 1}
    values = {key: value for key, value in ONE.items() if key != "seed"}
    change = {
        policy: {test: {"by_seed": (0.0, 0.0), "mean": 0.0, "std": 7.25} for test in ("original", "bg_gap")}
        for policy in POLICIES
    }
    text = terminal_report({"seeds": [ONE, other], "mean": values, "std": values, "change": change})
    assert "0.712 ± 0.712" in text
    assert "-17.5 ± 7.2" in text
    assert "1.42 ± 1.42 at 1" in text

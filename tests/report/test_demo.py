from objectaware.report.tables import demo_tables, markdown_report, terminal_report

ONE = {
    "seed": 0,
    "localization": {"contracam_crf": 0.7123, "full_image": 0.25},
    "background": {
        "baseline": {"original": 60.0, "bg_gap": 30.0},
        "background_mixup": {"original": 50.0, "bg_gap": 12.5},
    },
    "seconds": 300.0,
    "peak_memory_mib": 2000.0,
}


def test_a_table_shows_each_training_and_what_it_changed() -> None:
    localization, background = demo_tables(ONE)
    assert localization.rows["contracam_crf"] == {"mIoU": 0.7123}
    assert background.rows["bg_gap"] == {"baseline": 30.0, "background_mixup": 12.5, "change": -17.5}


def test_reports_hold_the_numbers() -> None:
    assert "0.712" in terminal_report(ONE)
    page = markdown_report(ONE, variant="single-object")
    assert "-17.5" in page
    assert "scenes" in page


def test_several_seeds_show_mean_and_spread() -> None:
    other = {**ONE, "seed": 1}
    values = {key: value for key, value in ONE.items() if key != "seed"}
    change = {test: {"by_seed": (0.0, 0.0), "mean": 0.0, "std": 7.25} for test in ("original", "bg_gap")}
    text = terminal_report({"seeds": [ONE, other], "mean": values, "std": values, "change": change})
    assert "0.712 ± 0.712" in text
    assert "-17.5 ± 7.2" in text

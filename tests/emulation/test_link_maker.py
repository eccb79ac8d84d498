from __future__ import annotations

import pytest

from edgefl.emulation import link_maker


@pytest.mark.parametrize(
    ("available", "queue", "chosen"),
    [("reno cubic", "fifo", "cubic"), ("reno", "fifo", ""), ("reno cubic", "fair", "")],
)
def test_losses_in_one_queue_are_answered_by_cubic_where_the_kernel_has_it(
    tmp_path, monkeypatch, available, queue, chosen
):
    file = tmp_path / "available"
    file.write_text(f"{available}\n")
    monkeypatch.setattr(link_maker, "_AVAILABLE", file)
    assert link_maker.congestion_control(queue) == chosen

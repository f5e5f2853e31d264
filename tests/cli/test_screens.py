# ruff: noqa: RUF001 - Chinese is quoted with its own punctuation
import msgspec
import pytest

from fairlease.cli.screens import drain_told, names, screen
from fairlease.cli.shares import settings
from fairlease.cli.table import Column, Style, cell_width, facts, printable, table
from fairlease.cli.wording import ago, count, length, share, until
from fairlease.figures.wording import gpu_hours
from fairlease_schemas.explain import (
    AsOf,
    BudgetNode,
    CommandAnswer,
    Counterfactual,
    DrainView,
    HostRow,
    HostsView,
    PolicyView,
    QueueRow,
    QueueView,
    RankRow,
    RankView,
    ShareRow,
    SharesView,
    Why,
    WhyReason,
    WhyText,
)
from fairlease_schemas.policy import Policy
from tests.cli.cell import attempt_view, job_view

NOW = 1_700_000_600_000
AS_OF = AsOf(epoch=1, position=42, log_time_ms=NOW)
PLAIN = Style(width=1000, has_color=False, is_wide=False)
WIDE = Style(width=1000, has_color=False, is_wide=True)
JOB = "job-" + "a" * 20

ROW = QueueRow(
    job=JOB,
    account="ci",
    budget="team-a",
    state="waiting",
    hosts=2,
    gpus=16,
    min_runtime_ms=5_400_000,
    since_ms=NOW - 120_000,
    rank=3,
    reason="protected-windows",
)
QUEUE = QueueView(
    waiting=7,
    running=1,
    rows=(
        msgspec.structs.replace(ROW, job="job-" + "b" * 20, state="running", rank=None, reason="", min_runtime_ms=0),
        ROW,
    ),
    as_of=AS_OF,
)


def test_the_queue() -> None:
    assert screen(QUEUE, NOW, PLAIN) == (
        "JOB                       STATE    BUDGET  GPUS  WINDOW   SINCE  RANK  REASON\n"
        "job-bbbbbbbbbbbbbbbbbbbb  running  team-a    16    idle  2m ago\n"
        "job-aaaaaaaaaaaaaaaaaaaa  waiting  team-a    16   1h30m  2m ago     3  protected-windows\n"
        "\n"
        "1 running, 7 waiting, 6 not shown; as of log position 1-42\n"
    )


def test_the_queue_counts_apart_who_does_not_compete() -> None:
    parked = msgspec.structs.replace(QUEUE, parked=2)
    foot = screen(parked, NOW, PLAIN).splitlines()[-1]
    assert foot == "1 running, 7 waiting, 2 not competing, 8 not shown; as of log position 1-42"


def test_the_wide_queue_names_accounts_and_hosts() -> None:
    first = screen(QUEUE, NOW, WIDE).splitlines()[0].split()
    assert first == ["JOB", "STATE", "ACCOUNT", "BUDGET", "HOSTS", "GPUS", "WINDOW", "SINCE", "RANK", "REASON"]


def test_a_quiet_queue_is_rows_alone() -> None:
    lines = screen(QUEUE, NOW, PLAIN, is_quiet=True).splitlines()
    assert [line.split()[0] for line in lines] == ["job-" + "b" * 20, JOB]


def test_an_empty_queue_still_says_where_it_was_read() -> None:
    empty = QueueView(waiting=0, running=0, rows=(), as_of=AS_OF)
    assert screen(empty, NOW, PLAIN).splitlines()[-1] == "0 running, 0 waiting; as of log position 1-42"


def test_why_gives_the_sentence_the_reasons_and_what_would_change_it() -> None:
    view = Why(
        job=JOB,
        state="waiting",
        as_of=AS_OF,
        rank=1,
        start_by_ms=NOW + 4_210_000,
        reasons=(
            WhyReason(
                code="protected-windows",
                since_ms=NOW - 60_000,
                until_ms=NOW + 3_600_000,
                evidence={"needed_gpus": 32, "free_gpus": 8, "for_ms": 3_600_000},
                positions=(17, 40),
            ),
        ),
        counterfactuals=(Counterfactual(change={"hosts": 4}, start_by_ms=NOW),),
        text=WhyText(en="Two hosts are inside their windows for another hour.", zh="两台主机仍在保护窗口内。"),
    )
    assert screen(view, NOW, PLAIN) == (
        "job     job-aaaaaaaaaaaaaaaaaaaa\n"
        "state   waiting\n"
        "rank    1\n"
        "starts  in 1h11m at the latest\n"
        "why     Two hosts are inside their windows for another hour.\n"
        "\n"
        "protected-windows since 1m ago, ends in 1h\n"
        "\n"
        "REASON             EVIDENCE\n"
        "protected-windows  needed_gpus 32, free_gpus 8, for 1h\n"
        "\n"
        "WITH     IT WOULD START\n"
        "hosts 4  now\n"
        "\n"
        "as of log position 1-42\n"
    )
    assert "两台主机" in screen(view, NOW, PLAIN, lang="zh")
    assert "17, 40" in screen(view, NOW, WIDE)


def claim(text: str, until_ms: int) -> Why:
    return Why(
        job=JOB,
        state="waiting",
        as_of=AS_OF,
        rank=1,
        start_by_ms=until_ms,
        reasons=(
            WhyReason(
                code="protected-windows",
                since_ms=NOW - 60_000,
                until_ms=until_ms,
                evidence={"needed_gpus": 8, "for_ms": until_ms - NOW + 60_000},
                positions=(17,),
            ),
        ),
        counterfactuals=(Counterfactual(change={"hosts": 4}, start_by_ms=NOW + 60_000),),
        text=WhyText(en=text, zh=text),
    )


def test_why_tells_one_length_everywhere_and_counts_from_the_log() -> None:
    later = NOW + 7_200_000
    text = screen(claim("for 1h at most", NOW + 3_599_677), later, PLAIN)
    assert "starts  in 1h at the latest" in text
    assert "protected-windows since 1m ago, ends in 1h\n" in text
    assert "needed_gpus 8, for 1h\n" in text
    assert "hosts 4  in 1m\n" in text
    assert text.endswith("as of log position 1-42, 2h ago\n")


def test_a_queue_of_the_past_counts_from_its_own_time() -> None:
    text = screen(QUEUE, NOW + 7_200_000, PLAIN, is_past=True)
    assert "2m ago     3  protected-windows\n" in text
    assert text.endswith("as of log position 1-42, 2h ago\n")
    assert "2h2m ago" in screen(QUEUE, NOW + 7_200_000, PLAIN)


def test_a_sentence_goes_on_below_where_it_began() -> None:
    narrow = Style(width=30, has_color=False, is_wide=False)
    lines = screen(claim("it needs 8 GPUs in pool h100, where 4 are free", NOW), NOW, narrow).splitlines()
    assert lines[4:6] == ["why     it needs 8 GPUs in", "        pool h100, where 4 are"]
    chinese = screen(claim("需要 h100 池中的八块 GPU，空闲四块。", NOW), NOW, narrow, lang="zh").splitlines()
    assert chinese[4:6] == ["why     需要 h100 池中的八块", "        GPU，空闲四块。"]
    assert all(cell_width(line) <= 30 for line in lines[4:7])


def share_row(budget: str, parent: str, depth: int, standing: int | None) -> ShareRow:
    return ShareRow(
        budget=budget,
        parent=parent,
        depth=depth,
        weight=2,
        pool="h100",
        entitled_gpu_ms=3_600_000 * 12,
        used_gpu_ms=3_600_000 * 6 + 1_800_000,
        promised_gpu_ms=0,
        standing_permille=standing,
        held_gpus=8,
        waiting_jobs=1,
    )


def test_shares_are_a_tree_in_gpu_hours() -> None:
    view = SharesView(rows=(share_row("root", "", 0, 541), share_row("org-a", "root", 1, None)), as_of=AS_OF)
    assert screen(view, NOW, PLAIN) == (
        "BUDGET   POOL  ENTITLED  USED  PROMISED  STANDING  GPUS  WAITING\n"
        "root     h100      12.0   6.5       0.0     0.541     8        1\n"
        "  org-a  h100      12.0   6.5       0.0         -     8        1\n"
        "\n"
        "in GPU-hours, as of log position 1-42\n"
    )
    assert screen(view, NOW, WIDE).split()[:3] == ["BUDGET", "POOL", "WEIGHT"]


def test_shares_and_rank_fit_eighty_columns() -> None:
    terminal = Style(width=80, has_color=False, is_wide=False)
    row = msgspec.structs.replace(
        share_row("a-team-with-a-long-name", "root", 7, 99_541), used_gpu_ms=3_600_000 * 1_000_000
    )
    ranked = RankRow(
        rank=100,
        job=JOB,
        budget="team-a",
        pool="h100",
        partition="debug-lane",
        licence="debug",
        gpus=1024,
        min_runtime_ms=5_400_000,
        path=(("team-a", 1_050), ("research", 990)),
        is_due_more=True,
        reason="window-overshare",
    )
    for view in (SharesView(rows=(row,), as_of=AS_OF), RankView(rows=(ranked,), as_of=AS_OF)):
        assert max(map(cell_width, screen(view, NOW, terminal).splitlines())) <= 80


def test_budgets_show_order_caps_and_people() -> None:
    nodes = (
        BudgetNode(budget="org", order="fifo", is_everybodys=True),
        BudgetNode(
            budget="a",
            parent="org",
            weight=3,
            order="smallest",
            max_protected_permille=500,
            burst_permille=1500,
            leads=("ann",),
            members=("bob", "zoe"),
            more_accounts=2,
        ),
        BudgetNode(budget="a1", order="fifo", parent="a"),
    )
    assert settings(nodes, PLAIN) == (
        "BUDGET  PARENT  WEIGHT  ORDER     WINDOW CAP    CAP  LEADS      MEMBERS\n"
        "org     -            1  fifo               -      -  everybody  everybody\n"
        "a       org          3  smallest       0.500  1.500  ann        bob, zoe, 2 more\n"
        "a1      a            1  fifo               -      -  as above   as above\n"
        "caps in shares of the entitled GPUs: those in windows, and all while others wait\n"
    )


def test_simulated_devices_are_marked_in_the_hosts() -> None:
    real = HostRow(
        host="host-1",
        pool="h100",
        model="H100",
        block="b1",
        gpus=8,
        free_gpus=0,
        is_simulated=False,
        holds=("cordon(ops): fan",),
        attempts=(f"{JOB}-a1",),
    )
    made_up = msgspec.structs.replace(real, host="sim-1", is_simulated=True, free_gpus=8, holds=(), attempts=())
    assert screen(HostsView(rows=(real, made_up), as_of=AS_OF), NOW, PLAIN) == (
        "HOST    POOL  DEVICES    MODEL  GPUS  FREE  HOLDS             RUNNING\n"
        "host-1  h100  real       H100      8     0  cordon(ops): fan  job-aaaaaaaaaaaaaaaaaaaa-a1\n"
        "sim-1   h100  simulated  H100      8     8\n"
        "\n"
        "2 hosts, 16 GPUs, 8 of them simulated, 8 free; as of log position 1-42\n"
    )
    tripped = HostsView(rows=(real,), as_of=AS_OF, tripped={"h100": AS_OF.log_time_ms - 300_000})
    assert screen(tripped, NOW, PLAIN).splitlines()[-1] == (
        "pool h100: the breaker tripped 5m ago, silent hosts there are not held; see `fairlease doctor`"
    )


def test_a_job_shows_its_contract_and_its_attempts() -> None:
    ran = msgspec.structs.replace(
        attempt_view(JOB, ("host-1", "host-2")),
        started_ms=NOW - 90_000,
        ended_ms=NOW - 30_000,
        end="failed",
        exit_code=3,
    )
    view = job_view(
        JOB, state="failed", end="failed", exit_code=3, attempts=(ran,), submitted_ms=NOW - 600_000, digest="d"
    )
    assert screen(view, NOW, PLAIN) == (
        "job         job-aaaaaaaaaaaaaaaaaaaa\n"
        "state       failed\n"
        "end         failed\n"
        "exit code   3\n"
        "account     local\n"
        "budget      team-a\n"
        "request id  r-1\n"
        "submitted   10m ago\n"
        "gang        1 host with 8 GPUs each\n"
        "window      15m\n"
        "timeout     1h\n"
        "contract    d\n"
        "\n"
        "ATTEMPT  POOL  GPUS  GRANTED  RAN  END     CODE  HOSTS\n"
        "      1  h100    16  10m ago   1m  failed     3  host-1, host-2\n"
        "\n"
        "as of log position 1-42\n"
    )


def test_a_gang_that_starts_says_for_whom_it_waits_and_where_it_meets() -> None:
    # rule: 1.15
    hosts = ("host-1", "host-2", "host-3", "host-4")
    waits = msgspec.structs.replace(attempt_view(JOB, hosts), not_ready=("host-3",), rendezvous="10.0.0.1:20001")
    shown = screen(job_view(JOB, state="granted", attempts=(waits,)), NOW, PLAIN).splitlines()
    assert "ready       3 of 4 hosts ready, waits for host-3" in shown
    assert "rendezvous  10.0.0.1:20001" in shown
    many = msgspec.structs.replace(waits, hosts=tuple(f"host-{n}" for n in range(2048)), late_hosts=2000)
    shown = screen(job_view(JOB, state="granted", attempts=(many,)), NOW, PLAIN).splitlines()
    assert "ready       48 of 2048 hosts ready, waits for host-3 and 1999 more" in shown
    over = screen(job_view(JOB, state="failed", attempts=(waits,)), NOW, PLAIN)
    assert "waits for" not in over


def test_a_job_says_why_it_is_over_and_for_whom_it_left() -> None:
    left = msgspec.structs.replace(attempt_view(JOB, ("host-1",)), end="preempted", stop_for="job-" + "c" * 20)
    drained = msgspec.structs.replace(left, number=2, stop_for="", drained_from="host-1")
    failed = msgspec.structs.replace(left, number=3, stop_for="", end="start-failed", detail="no such program: trian")
    moved = msgspec.structs.replace(left, number=4, stop_for="", is_moved=True)
    view = job_view(
        JOB,
        state="failed",
        end="start-failed",
        attempts=(left, drained, moved, failed),
        held_by="ann",
        cancelled_for="job-" + "d" * 20,
        array_index=3,
        array_count=40,
    )
    lines = screen(view, NOW, PLAIN).splitlines()
    assert "held by     ann" in lines
    assert "waited for  job-dddddddddddddddddddd, which did not end well" in lines
    assert "cause       no such program: trian" in lines
    assert "array       index 3, of 40 jobs" in lines
    assert any("preempted     job-cccccccccccccccccccc" in line for line in lines)
    assert any("preempted     the drain of host-1" in line for line in lines)
    assert any("preempted     a whole host" in line for line in lines)
    assert sum("no such program" in line for line in screen(view, NOW, WIDE).splitlines()) == 2


def test_a_policy_shows_lengths_and_lists() -> None:
    view = PolicyView(
        name="default", policy=msgspec.json.decode(msgspec.json.encode(Policy(lookback_ms=60_000))), as_of=AS_OF
    )
    assert screen(view, NOW, PLAIN).splitlines()[:2] == ["policy       default", "lookback_ms  1m"]
    bounds = PolicyView(name="p", policy={"window_bounds": [{"up_to_gpus": 8, "shortest_ms": 900_000}]}, as_of=AS_OF)
    assert "window_bounds[0].shortest_ms  15m" in screen(bounds, NOW, PLAIN)
    empty = PolicyView(name="p", policy={"return_checks": []}, as_of=AS_OF)
    assert screen(empty, NOW, PLAIN).splitlines()[1].split() == ["return_checks", "none"]


def test_a_policy_shows_every_number_by_the_name_that_set_takes() -> None:
    numbers = msgspec.json.decode(msgspec.json.encode(msgspec.structs.asdict(Policy())))
    shown = screen(PolicyView(name="p", policy=numbers, as_of=AS_OF), NOW, PLAIN).splitlines()
    names_shown = {line.split()[0].partition("[")[0] for line in shown[1:] if line and "as of" not in line}
    assert names_shown == set(Policy.__struct_fields__)
    assert 'change_gate ""' in [" ".join(line.split()) for line in shown]


def test_the_names_of_a_view_are_its_ids() -> None:
    answer = CommandAnswer(account="a", seq=1, verb="v", outcome="accepted", job="", as_of=AS_OF)
    assert names(QUEUE) == ("job-" + "b" * 20, JOB)
    assert names(answer) == ()
    assert names(job_view(JOB)) == (JOB,)


def test_a_table_fits_the_terminal_by_cutting_what_may_be_cut() -> None:
    columns = (Column("ID"), Column("TEXT", is_flexible=True), Column("N", is_number=True))
    style = Style(width=26, has_color=False, is_wide=False)
    assert table(columns, [("job-1234", "a long story", "7")], style) == (
        "ID        TEXT          N\njob-1234  a long story  7\n"
    )
    narrow = Style(width=22, has_color=False, is_wide=False)
    assert table(columns, [("job-1234", "a long story", "7")], narrow).splitlines()[1] == "job-1234  a long s…  7"
    tiny = Style(width=5, has_color=False, is_wide=False)
    assert table(columns, [("job-1234", "a long story", "7")], tiny).splitlines()[1] == "job-1234  a long …  7"


def test_chinese_lines_up() -> None:
    style = Style(width=100, has_color=False, is_wide=False)
    assert table((Column("A"), Column("B")), [("训练", "x"), ("abcd", "y")], style) == "A     B\n训练  x\nabcd  y\n"
    assert (cell_width("训练"), cell_width("e\u0301"), cell_width("ab")) == (4, 1, 2)


def test_colour_fills_no_width_and_stands_only_where_it_may() -> None:
    style = Style(width=100, has_color=True, is_wide=False)
    colored = table((Column("STATE"), Column("X")), [("running", "y")], style)
    assert colored == "\x1b[1mSTATE  \x1b[0m  \x1b[1mX\x1b[0m\n\x1b[32mrunning\x1b[0m  y\n"


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\u202eb", "a\x07b", "a\u200bb"])
def test_what_others_typed_never_commands_the_terminal(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text)[0] == "a"
    assert text not in table((Column("A"),), [(text,)], PLAIN)
    assert text not in facts([("a", text)])


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (ago(NOW - 500, NOW), "just now"),
        (ago(NOW + 5_000, NOW), "just now"),
        (ago(NOW - 59_999, NOW), "59s ago"),
        (ago(NOW - 3_661_000, NOW), "1h1m ago"),
        (ago(NOW - 36_000_000, NOW), "10h ago"),
        (ago(NOW - 90_000_000, NOW), "1d1h ago"),
        (ago(0, NOW), ""),
        (until(None, NOW), ""),
        (until(NOW - 1, NOW), "now"),
        (until(NOW + 7_200_000, NOW), "in 2h"),
        (length(5_400_123), "1h30m"),
        (length(500), "500ms"),
        (length(0), "0s"),
        (gpu_hours(0), "0.0"),
        (gpu_hours(540_000), "0.2"),
        (gpu_hours(900_000), "0.3"),
        (gpu_hours(179_999), "<0.1"),
        (gpu_hours(180_000), "0.1"),
        (gpu_hours(3_600_000 * 1_000_000), "1,000,000.0"),
        (share(None), "-"),
        (share(0), "0.000"),
        (share(1_050), "1.050"),
        (count(1, "host"), "1 host"),
        (count(0, "host"), "0 hosts"),
    ],
)
def test_numbers_in_the_words_of_people(said: str, wanted: str) -> None:
    assert said == wanted


@pytest.mark.parametrize(
    ("state", "numbers", "told"),
    [
        (
            "queued",
            {"left": 2, "empty_ms": None, "behind": ("host-001", "host-004")},
            "queued behind host-001, host-004, 2 left",
        ),
        ("planned", {"start_ms": NOW + 30 * 60_000}, "planned, begins in 30m, empty in 1h at the latest"),
        ("draining", {"left": 1}, "draining, 1 left, empty in 1h at the latest"),
        ("drained", {}, "drained for bot"),
    ],
)
def test_a_drain_says_its_state_and_by_when_the_host_is_empty(
    state: str, numbers: dict[str, object], told: str
) -> None:
    plain = {"start_ms": NOW, "deadline_ms": None, "empty_ms": NOW + 60 * 60_000, "left": 0}
    assert drain_told(DrainView(owner="bot", state=state, **(plain | numbers)), NOW) == told  # type: ignore[arg-type] # by name

"""The words of pages and tables of simulations, in English and Chinese, from one table.

A sentence names its values as `{name}`; a test fills every sentence in both languages and compares what they name.
"""
# ruff: noqa: RUF001 - Chinese is written with its own punctuation

from typing import Final

from fairlease.core.words import Number, Words

LANGUAGES: Final = ("en", "zh")

SENTENCES: Final[dict[str, Words]] = {
    # titles and leads
    "simulation": {"en": "Simulation: {policy}", "zh": "模拟：{policy}"},
    "simulation-lead": {
        "en": "{hosts:host} with {gpus:GPU} over {length}, seed {seed}. Every number below was measured in virtual "
        "time with the rules that a live cell decides by.",
        "zh": "{hosts} 台主机、{gpus} 块 GPU，时长 {length}，种子 {seed}。以下数字均在虚拟时间内测得，"
        "所用规则与线上系统相同。",
    },
    "comparison": {"en": "Policies compared: {workload}", "zh": "策略比较：{workload}"},
    "comparison-lead": {
        "en": "{hosts:host} with {gpus:GPU} over {length}; {count:seed} for each policy. A number is the median over "
        "the seeds, in brackets the least and the most.",
        "zh": "{hosts} 台主机、{gpus} 块 GPU，时长 {length}；每种策略 {count} 个种子。数字为各种子的中位数，"
        "括号内为最小值与最大值。",
    },
    "whatif": {"en": "What would have been", "zh": "假如当时换一种设置"},
    "whatif-lead": {
        "en": "{jobs:job} of a recorded log of {length}, played once more: what was, the same played again, and "
        "{change}.",
        "zh": "重放一份 {length} 的日志中的 {jobs} 个任务：实际发生的、原样重放的，以及改动后的（{change}）。",
    },
    "whatif-reading": {
        "en": "Compare the last with the second: both rest on the same assumptions. What lies between the first two is "
        "what the assumptions cost.",
        "zh": "请比较后两列：它们依据相同的假设；前两列之差即假设带来的误差。",
    },
    "changed-table": {"en": "Waits of the jobs that changed most", "zh": "变化最大的任务的等待"},
    "was": {"en": "as it was", "zh": "实际"},
    "again": {"en": "played again", "zh": "原样重放"},
    "would": {"en": "changed", "zh": "改动后"},
    # sections
    "in-short": {"en": "In short", "zh": "概要"},
    "waits": {"en": "How long jobs waited", "zh": "任务等待多久"},
    "waits-caption": {
        "en": "For each length of wait, how many of the jobs waited no longer. The higher a line on the left, the "
        "better. A wait is from submission to the first grant; the marks below are not evenly long.",
        "zh": "横轴为等待时长，纵轴为等待不超过该时长的任务比例；曲线在左侧越高越好。等待指从提交到首次获得 GPU；"
        "横轴刻度间隔并不等长。",
    },
    "waits-table": {"en": "Waits by class", "zh": "各类任务的等待"},
    "waits-all": {"en": "All points of the curves", "zh": "曲线的全部数据"},
    "fulfilment": {"en": "What each budget got of its due", "zh": "各预算兑现了多少"},
    "fulfilment-caption": {
        "en": "For each stretch of time, what a budget's work held over what the budget was due, at most 100 %; the "
        "dashed line is 95 %. It is blank where nothing was due, because nobody asked. At the end of a row stands the "
        "whole time, in which more at one time makes up for less at another.",
        "zh": "每段时间内预算实际占用与应得之比，最高 100 %；虚线为 95 %。空白表示没有应得量（无人申请）。"
        "行末为全程的兑现率，其间多得与少得可以相抵。",
    },
    "fulfilment-table": {"en": "Held and due by budget", "zh": "各预算的占用与应得"},
    "fulfilment-all": {"en": "Fulfilment by stretch of time", "zh": "各时段的兑现率"},
    "hosts": {"en": "What every host did", "zh": "每台主机在做什么"},
    "hosts-caption": {
        "en": "A row is a host, or several in a row where there are many; time goes from left to right. Each place "
        "shows what took most of that stretch.",
        "zh": "每行是一台主机（主机很多时为相邻的几台），时间从左到右；每格显示该时段内占时最多的状态。",
    },
    "hosts-table": {"en": "Parts of the time of hosts", "zh": "主机各状态的时间占比"},
    "hosts-out": {"en": "When hosts were out or being emptied", "zh": "主机停用或腾空的时段"},
    "lost": {"en": "GPU-hours lost, by cause", "zh": "损失的 GPU 时，按原因"},
    "lost-caption": {
        "en": "GPU-hours of work that were done and not kept, or spent on starting again, where that became known. All "
        "rows are on one scale.",
        "zh": "做了却未保留的工作，或重新启动所花的 GPU 时，记在得知之时。各行同一比例。",
    },
    "evictions": {"en": "Work that was told to leave", "zh": "被要求让出的任务"},
    "evictions-caption": {
        "en": "Evictions by reason: for a claim, for a promise, for a drain, because a drain had a deadline, or so "
        "that a host is whole.",
        "zh": "按原因统计的抢占：为申请者、为承诺、为腾空主机、因腾空期限，或为空出整机。",
    },
    "no-evictions": {"en": "Nobody was told to leave.", "zh": "没有任务被要求让出。"},
    "promises": {"en": "Promises of a start", "zh": "启动时间承诺"},
    "promises-caption": {
        "en": "Promises that were made, and what became of them: kept, replaced by an earlier one, voided by an event "
        "that nobody can help, or broken, which must be none.",
        "zh": "作出的承诺及其结果：兑现、被更早的承诺取代、因不可抗事件作废，或违背（必须为零）。",
    },
    "by-stretch": {"en": "Losses, evictions and promises by stretch of time", "zh": "各时段的损失、抢占与承诺"},
    "per-budget": {"en": "What each budget got of its due", "zh": "各预算兑现了多少"},
    "per-budget-caption": {
        "en": "Fulfilment of each budget, all bars up to 100 %.",
        "zh": "每个预算的兑现率，条形满格为 100 %。",
    },
    "first-table": {"en": "The figures that are told first", "zh": "主要数字"},
    "figures-table": {"en": "All figures", "zh": "全部数字"},
    "meanings": {"en": "What these figures mean", "zh": "这些数字的含义"},
    "waits-by-class": {
        "en": "One picture for each class of jobs.",
        "zh": "每类任务一图。",
    },
    "over-seeds": {
        "en": "Each value is the median over the seeds; a thin line goes from the least to the most.",
        "zh": "数值为各种子的中位数，细线为最小到最大。",
    },
    "costs": {"en": "What it cost", "zh": "代价"},
    "costs-caption": {
        "en": "GPU-hours lost, evictions and promises. All bars of a picture are on one scale.",
        "zh": "损失的 GPU 时、抢占与承诺。同一图内比例相同。",
    },
    "one-run": {"en": "{policy}, seed {seed}, in time", "zh": "{policy}，种子 {seed}，随时间变化"},
    "one-log": {"en": "{policy}, in time", "zh": "{policy}，随时间变化"},
    "rests-on": {"en": "What this rests on", "zh": "依据"},
    "rules": {
        "en": "Rules that were applied to the workload, with how many things each met",
        "zh": "对负载所用的规则及涉及数量",
    },
    "no-rules": {"en": "The workload was played exactly as its file says.", "zh": "负载完全按文件执行。"},
    "digests": {
        "en": "Workload {workload}; result {result}. The same workload, policy and seed give the same result "
        "everywhere.",
        "zh": "负载 {workload}；结果 {result}。相同的负载、策略与种子在任何机器上结果相同。",
    },
    "missing": {
        "en": "Not all runs came to their end; the numbers are of those that did. Missing: {runs}.",
        "zh": "并非所有运行都完成，以下数字仅来自完成者。缺少：{runs}。",
    },
    "missed": {
        "en": "Figures that are not as good as was asked for: {figures}.",
        "zh": "未达到要求的数字：{figures}。",
    },
    "changed-jobs": {"en": "Jobs that would have waited otherwise", "zh": "等待会改变的任务"},
    "changed-lead": {
        "en": "Against the same log played again {earlier:job} would have started earlier, {later} later, and {same} "
        "at the same time.",
        "zh": "与原样重放相比，{earlier} 个任务会更早启动，{later} 个更晚，{same} 个不变。",
    },
    # columns
    "figure": {"en": "figure", "zh": "指标"},
    "value": {"en": "value", "zh": "值"},
    "class": {"en": "class", "zh": "类别"},
    "jobs": {"en": "jobs", "zh": "任务数"},
    "half": {"en": "half within", "zh": "一半不超过"},
    "most": {"en": "9 of 10 within", "zh": "九成不超过"},
    "nearly-all": {"en": "99 of 100 within", "zh": "99% 不超过"},
    "mean": {"en": "mean", "zh": "平均"},
    "budget": {"en": "budget", "zh": "预算"},
    "held": {"en": "held GPU-h", "zh": "占用 GPU 时"},
    "due": {"en": "due GPU-h", "zh": "应得 GPU 时"},
    "fulfilled": {"en": "fulfilment", "zh": "兑现率"},
    "host": {"en": "host", "zh": "主机"},
    "up-to": {"en": "up to", "zh": "截至"},
    "of-jobs": {"en": "of the jobs", "zh": "任务比例"},
    "when": {"en": "state, from and to", "zh": "状态与起止"},
    "rule": {"en": "rule", "zh": "规则"},
    "count": {"en": "count", "zh": "数量"},
    "job": {"en": "job", "zh": "任务"},
    "policy": {"en": "policy", "zh": "策略"},
    # classes of jobs
    "wait.all": {"en": "all but idle work", "zh": "全部（不含空闲任务）"},
    "wait.idle": {"en": "idle work", "zh": "空闲任务"},
    "wait.debug": {"en": "debug", "zh": "调试"},
    "wait.small": {"en": "small, to 8 GPUs", "zh": "小型（≤8 GPU）"},
    "wait.medium": {"en": "medium, to 64 GPUs", "zh": "中型（≤64 GPU）"},
    "wait.large": {"en": "large, above 64 GPUs", "zh": "大型（>64 GPU）"},
    "wait.gangs_128": {"en": "gangs from 128 GPUs", "zh": "≥128 GPU 的任务"},
    # states of hosts
    "busy": {"en": "busy", "zh": "工作"},
    "saving": {"en": "told to leave, saving", "zh": "收到让出通知，保存中"},
    "faulty": {"en": "faulty", "zh": "故障"},
    "drained": {"en": "free, takes no work", "zh": "空闲但不接任务"},
    "idle": {"en": "free", "zh": "空闲"},
    # causes, reasons and fates
    "lost.eviction": {"en": "evictions", "zh": "抢占"},
    "lost.fault": {"en": "faults", "zh": "故障"},
    "lost.cancelled": {"en": "stopped by its owner", "zh": "所有者停止"},
    "lost.failure": {"en": "failed attempts", "zh": "失败的尝试"},
    "lost.restart": {"en": "starting again", "zh": "重新启动"},
    "lost.abandoned": {"en": "unused checkpoints", "zh": "未使用的检查点"},
    "evicted.claim": {"en": "for a claim", "zh": "为申请者"},
    "evicted.promise": {"en": "for a promise", "zh": "为承诺"},
    "evicted.drain": {"en": "for a drain", "zh": "为腾空主机"},
    "evicted.move": {"en": "to make a host whole", "zh": "为空出整机"},
    "evicted.deadline": {"en": "by a drain's deadline", "zh": "因腾空期限"},
    "cost.gpu_hours.lost_stopped": {"en": "at evictions, faults and stops", "zh": "抢占、故障与停止"},
    "cost.gpu_hours.lost_failed": {"en": "by failed attempts", "zh": "失败的尝试"},
    "cost.gpu_hours.lost_restart": {"en": "by starting again", "zh": "重新启动"},
    "cost.gpu_hours.lost_abandoned": {"en": "in unused checkpoints", "zh": "未使用的检查点"},
    "cost.preemption.count": {"en": "evictions", "zh": "抢占次数"},
    "cost.preemption.turns": {"en": "turns after a whole window", "zh": "完整窗口后的轮换"},
    "cost.preemption.loops": {"en": "loops", "zh": "循环抢占"},
    "cost.preemption.window_breaks": {"en": "windows broken", "zh": "窗口违背"},
    "cost.promises.made": {"en": "promises made", "zh": "作出的承诺"},
    "cost.promises.kept": {"en": "kept", "zh": "兑现"},
    "cost.promises.earlier": {"en": "replaced by an earlier one", "zh": "被更早的取代"},
    "cost.promises.voided": {"en": "voided", "zh": "作废"},
    "cost.promises.broken": {"en": "broken", "zh": "违背"},
    "promise.made": {"en": "made", "zh": "作出"},
    "promise.kept": {"en": "kept", "zh": "兑现"},
    "promise.earlier": {"en": "replaced by an earlier one", "zh": "被更早的取代"},
    "promise.voided": {"en": "voided", "zh": "作废"},
    "promise.broken": {"en": "broken", "zh": "违背"},
}

FIGURES: Final[dict[str, Words]] = {
    "fulfilment.mean": {"en": "fulfilment, mean", "zh": "兑现率，平均"},
    "fulfilment.lowest": {"en": "fulfilment, lowest", "zh": "兑现率，最低"},
    "fulfilment.at_least_95": {"en": "budgets at 95 %", "zh": "达到 95 % 的预算"},
    "occupancy": {"en": "occupancy", "zh": "占用率"},
    "availability": {"en": "availability", "zh": "可用率"},
    "impact": {"en": "within entitlement", "zh": "应得份额内"},
    "progress": {"en": "work kept", "zh": "保留的工作"},
    "wait.all.p50_s": {"en": "wait, p50", "zh": "等待 p50"},
    "wait.all.p90_s": {"en": "wait, p90", "zh": "等待 p90"},
    "wait.debug.p90_s": {"en": "debug wait, p90", "zh": "调试等待 p90"},
    "wait.debug.p99_s": {"en": "debug wait, p99", "zh": "调试等待 p99"},
    "wait.large.p90_s": {"en": "large wait, p90", "zh": "大型等待 p90"},
    "wait.gangs_128.p90_s": {"en": "gang wait, p90", "zh": "大任务等待 p90"},
    "preemption.count": {"en": "evictions", "zh": "抢占次数"},
    "preemption.overhead": {"en": "evictions' cost", "zh": "抢占的代价"},
    "preemption.lost_gpu_h": {"en": "GPU-h lost to them", "zh": "抢占损失 GPU 时"},
    "preemption.window_breaks": {"en": "windows broken", "zh": "窗口违背"},
    "preemption.loops": {"en": "loops", "zh": "循环抢占"},
    "promises.made": {"en": "promises made", "zh": "承诺作出"},
    "promises.kept": {"en": "promises kept", "zh": "承诺兑现"},
    "promises.broken": {"en": "promises broken", "zh": "承诺违背"},
    "jobs.finished": {"en": "jobs finished", "zh": "完成的任务"},
}
"""The figures that are told first, by their public names and in their order."""


FIRST: Final = (
    *("fulfilment.mean", "fulfilment.lowest", "fulfilment.at_least_95", "occupancy"),
    *("wait.all.p50_s", "wait.all.p90_s", "wait.debug.p90_s", "wait.gangs_128.p90_s"),
    *("progress", "preemption.overhead", "preemption.window_breaks", "promises.broken"),
)
"""The few of them that the page of one run begins with."""

MEANINGS: Final[tuple[Words, ...]] = (
    {
        "en": "A budget is due the GPUs that it is entitled to, as far as its work asks for them; fulfilment is what "
        "its work held of that.",
        "zh": "预算的应得量是其有权使用、且其任务确实申请的 GPU；兑现率是其任务实际占用与应得之比。",
    },
    {
        "en": "Occupancy is held GPU-time over that of hosts which took work.",
        "zh": "占用率是被占用的 GPU 时间与可调度主机 GPU 时间之比。",
    },
    {
        "en": "Of waits, p90 says how long nine of ten jobs waited at most. Idle work, which asks for no window, is "
        "not among all waits.",
        "zh": "等待的 p90 表示九成任务的等待不超过该值；不要求窗口的空闲任务不计入全部等待。",
    },
    {
        "en": "Work is kept when a later attempt went on from it, or when its job succeeded.",
        "zh": "若后续尝试从检查点继续，或任务成功，其工作即为保留。",
    },
    {
        "en": "What evictions cost is the time lost by them and spent on starting again, over all held time.",
        "zh": "抢占的代价是因抢占损失及重新启动的时间与全部占用时间之比。",
    },
    {
        "en": "A window is the time that work may run before it can be told to leave; none may be broken, nor may a "
        "promise.",
        "zh": "窗口是任务在被要求让出之前可以运行的时间；窗口与承诺均不得违背。",
    },
)
"""What the figures mean, for who owns a budget and runs no cluster."""


def say(key: str, lang: str, **values: str | int) -> str:
    """The sentence of this key; numbers are spoken with what they count."""
    told = {name: Number(f"{value:,}") if isinstance(value, int) else value for name, value in values.items()}
    return SENTENCES[key][lang].format(**told)


def name_of(group: str, key: str, lang: str) -> str:
    """What something of a closed list is called; a name that is not on the list as it stands."""
    found = SENTENCES.get(f"{group}.{key}")
    return found[lang] if found is not None else key

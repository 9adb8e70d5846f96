"""From addresses to folded stacks: which frames are removed, marked and left out."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from zfstrace.recording import (
    STAGES,
    Recording,
    StackLosses,
    StackOptions,
    StackSum,
    build,
)
from zfstrace.stacks import Stacks

LOST = StackLosses(no_stack=1)


class Kernel:
    """Gives functions addresses: each is 16 bytes long, a call returns behind its last."""

    def __init__(self) -> None:
        self.names: list[str] = ["[unknown]"]

    def stack(self, *root_first: str) -> tuple[int, ...]:
        found = []
        for name in reversed(root_first):
            if name not in self.names:
                self.names.append(name)
            found.append((self.names.index(name) + 1) * 16)
        return tuple(found)

    def running(self, *root_first: str) -> tuple[int, ...]:
        """Its leaf is where it is, and may be the first byte of a function."""
        leaf, *others = self.stack(*root_first)
        return leaf - 16, *others

    def name(self, address: int) -> str:
        return self.names[address // 16]


KERNEL = Kernel()
FSYNC = (
    "do_fsync",
    "zpl_fsync [zfs]",
    "zil_commit_impl [zfs]",
    "cv_wait_common [spl]",
)
ASLEEP = (*FSYNC, "schedule")
TRACER = ("__traceiter_sched_switch", "bpf_trace_run4", "bpf_prog_123_tp_sched_switch [bpf]")
SUM = StackSum("tank", (0, 0), "flush", "fio", KERNEL.stack(*FSYNC), 1000, 2)


def recorded(
    *sums: StackSum, kind: str = "off-cpu", target: str = "fsync", pool: str | None = None
) -> Recording:
    options = StackOptions(kind, target, pool=pool)
    return build(sums, LOST, options, KERNEL.name, lambda dev: "tank" if dev == (0, 47) else None)


def only(recording: Recording) -> str:
    (stack,) = recording.stacks.counts
    return stack


def kernel_part(recording: Recording) -> str:
    return only(recording).split(";", 3)[3]


def test_a_stack_has_labels_then_frames() -> None:
    recording = recorded(SUM, replace(SUM, ns=500))
    assert recording.stacks == Stacks(
        "off-cpu", "ns", "", {";".join(("tank", "flush", "fio", *ASLEEP)): 1500}
    )
    assert recording.losses is LOST


def test_samples_are_counted() -> None:
    assert recorded(SUM, kind="on-cpu").stacks.counts.popitem()[1] == 2


def test_the_tracers_are_taken_out() -> None:
    one = replace(SUM, frames=KERNEL.running(*FSYNC, *TRACER))
    assert kernel_part(recorded(one, kind="on-cpu")) == ";".join(FSYNC)


def test_fentry_does_not_double_a_function() -> None:
    traced = (*FSYNC[:2], "bpf_trampoline_644 [bpf]", *FSYNC[1:])
    assert kernel_part(recorded(replace(SUM, frames=KERNEL.stack(*traced)))) == ";".join(ASLEEP)
    # but one that ends in a jump to another is only seen in this way, and recursion stays
    jumped = ("zil_commit [zfs]", "bpf_trampoline_645 [bpf]", "zil_commit_impl [zfs]", "f", "f")
    folded = kernel_part(recorded(replace(SUM, frames=KERNEL.stack(*jumped))))
    assert folded == "zil_commit [zfs];zil_commit_impl [zfs];f;f;schedule"


def test_what_a_tracer_calls_is_not_shown() -> None:
    """A sample may hit a helper of one of our programs, or what the trampoline calls."""
    program = ("bpf_trampoline_644 [bpf]", "bpf_prog_1_fentry_cv_wait [bpf]")
    for tail in (
        (*program, "bpf_task_storage_get_recur", "migrate_enable"),
        (*program, "__htab_map_lookup_elem"),
        (program[0], "__bpf_prog_enter_recur", "migrate_disable"),
        ("bpf_task_storage_get_recur", "migrate_enable"),
    ):
        one = replace(SUM, frames=KERNEL.running(*FSYNC, *tail))
        assert kernel_part(recorded(one, kind="on-cpu")) == ";".join(FSYNC)


def test_a_function_interrupted_at_its_first_instruction_has_its_name() -> None:
    """Not that of the padding before it."""
    for first, expected in (
        ("__pfx___bpf_tramp_enter", FSYNC),
        ("__pfx_zil_commit_impl [zfs]", (*FSYNC, "zil_commit_impl [zfs]", "asm_sysvec_timer")),
    ):
        one = replace(SUM, frames=KERNEL.running(*FSYNC, first, "asm_sysvec_timer"))
        assert kernel_part(recorded(one, kind="on-cpu")) == ";".join(expected)


def test_a_stack_without_frames_says_why() -> None:
    assert kernel_part(recorded(replace(SUM, frames=()))) == "[no stack]"
    ours = KERNEL.running("bpf_trampoline_644 [bpf]", "bpf_prog_1_fentry_cv_wait [bpf]")
    assert kernel_part(recorded(replace(SUM, frames=ours), kind="on-cpu")) == "[tracer]"
    assert kernel_part(recorded(replace(SUM, frames=(), in_user=True))) == "[user]"
    assert kernel_part(recorded(replace(SUM, preempted=True))).endswith(";schedule;[preempted]")


def test_pools_are_found_by_name_or_device() -> None:
    nameless = replace(SUM, pool="")
    assert only(recorded(replace(nameless, dev=(0, 47)))).startswith("tank;")
    assert only(recorded(nameless)).startswith("[unknown];")
    assert only(recorded(replace(nameless, stage="outside"))).startswith("[no pool];")
    assert not recorded(SUM, pool="other").stacks.counts
    assert recorded(SUM, pool="tank").stacks.counts


def test_wakers_follow_the_sleeper() -> None:
    waker = ("ret_from_fork", "zio_execute [zfs]", "zil_lwb_flush_vdevs_done [zfs]", "wake_up")
    woken = replace(SUM, woken=True, waker=KERNEL.running(*waker), waker_comm="z_null_int")
    sleeper = ";".join(ASLEEP)
    want = ";".join([sleeper, "--", *reversed(waker), "z_null_int"])
    assert kernel_part(recorded(woken, kind="wakeup")) == want
    by_irq = KERNEL.running("start_kernel", "do_idle", "asm_sysvec_apic_timer_interrupt", "tick")
    irq = replace(woken, waker=by_irq, waker_comm="swapper/0")
    want = f"{sleeper};--;tick;asm_sysvec_apic_timer_interrupt;[irq]"
    assert kernel_part(recorded(irq, kind="wakeup")) == want
    assert kernel_part(recorded(SUM, kind="wakeup")) == f"{sleeper};--;[no waker]"
    assert kernel_part(recorded(replace(woken, waker=()), kind="wakeup")).endswith(
        "--;[no stack];z_null_int"
    )
    # it needed no waker
    preempted = kernel_part(recorded(replace(SUM, preempted=True), kind="wakeup"))
    assert preempted == f"{sleeper};[preempted]"
    assert kernel_part(recorded(woken)) == sleeper


THREAD = ("ret_from_fork_asm", "ret_from_fork", "kthread")
WAIT = ("__cv_timedwait_idle [spl]", "__cv_timedwait_common [spl]")


def test_idle_threads_are_left_out() -> None:
    idle = [
        (*THREAD, "taskq_thread [spl]"),
        (*THREAD, "thread_generic_wrapper [spl]", "zthr_procedure [zfs]", *WAIT),
        (*THREAD, "txg_sync_thread [zfs]", "txg_thread_wait [zfs]", *WAIT),
        ("do_syscall_64", "zfs_zevent_wait [zfs]", "__cv_wait_sig [spl]"),
    ]
    busy = [
        (*THREAD, "taskq_thread [spl]", "mutex_lock"),
        (*THREAD, "txg_sync_thread [zfs]", "spa_sync [zfs]", *WAIT),
        (*THREAD, "taskq_thread [spl]", "zio_execute [zfs]"),
        ("do_syscall_64", "zfs_read [zfs]", "cv_wait_common [spl]"),
    ]
    foreign = (*THREAD, "worker_thread")
    sums = [
        replace(SUM, stage="outside", pool="", frames=KERNEL.stack(*frames))
        for frames in (*idle, *busy, foreign)
    ]
    recording = recorded(*sums, target="zfs")
    assert recording.idle == 1000 * len(idle)
    assert len(recording.stacks.counts) == len(busy)
    assert recorded(replace(sums[0], preempted=True), target="zfs").idle == 0
    assert recorded(*sums, target="pid").stacks.total == 1000 * len(sums)


@given(
    st.lists(
        st.builds(
            StackSum,
            st.text(max_size=5),
            st.tuples(st.integers(0, 4095), st.integers(0, 99)),
            st.sampled_from(STAGES),
            st.text(max_size=16),
            st.lists(st.integers(1, 15 * 16), max_size=5).map(tuple),
            st.integers(1, 2**60),
            st.integers(1, 2**40),
            st.booleans(),
            st.booleans(),
            st.booleans(),
            st.text(max_size=16),
            st.lists(st.integers(1, 15 * 16), max_size=5).map(tuple),
        )
    ),
    st.sampled_from(["off-cpu", "on-cpu", "wakeup"]),
)
def test_no_weight_is_lost(sums: list[StackSum], kind: str) -> None:
    recording = build(
        sums, LOST, StackOptions(kind, "fsync"), lambda address: f"f{address // 16}", lambda _: None
    )
    weights = [one.count if kind == "on-cpu" else one.ns for one in sums]
    assert recording.stacks.total == sum(weights)
    assert recording.idle == 0
    assert all(not set(stack) & set("\n\r") for stack in recording.stacks.counts)

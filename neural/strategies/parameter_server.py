"""Training over a parameter server: workers push how their steps moved the weights and pull what all have made of them.

Every rank is a worker; the first ones also run a server, and rank 0 the coordinator. A worker's step is that of its
own optimiser on a batch of its own, and counts with the weight 1 / ranks. An epoch is over when all workers
together have done the batches of an epoch, whoever did them: fast workers do more. The clocks of an epoch start at
a multiple of a large number, to which every worker jumps when it leaves the epoch, so that nobody waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dmlgbm.gbdt.system.counter_random import hash_of
from dmlgbm.neural.batches import Batch, BatchSource
from dmlgbm.neural.context import RankContext
from dmlgbm.neural.gradient_channel import single_payload_codec
from dmlgbm.neural.model import FloatArray
from dmlgbm.neural.strategies.base import SteppedStrategy
from dmlgbm.neural.strategies.local_sgd import average_buffers
from dmlgbm.neural.strategies.parts.server_weights import BlockWeights, CodedWeights, WholeWeights

if TYPE_CHECKING:
    from dmlgbm.collectives import Handle
    from dmlgbm.collectives.parameter_server import Consistency, Membership, ParameterServer, Store

_CLOCKS_OF_AN_EPOCH = 1 << 32


@dataclass
class ParameterServerStrategy(SteppedStrategy):
    """`consistency` bsp: nobody begins a step before all have finished the last one, but `backup_workers` whose late
    pushes are dropped. ssp: nobody is more than `staleness` pushes ahead of the slowest. asp: nobody waits.

    Workers push after every `push_interval` steps and pull after every `pull_interval`. With `double_buffer` a pull
    goes on while the next steps are computed, and its result is taken at the next pull. `send_above` = t pushes
    only blocks that have gathered more than t times the root mean square of a change; the rest waits. A codec
    carries pushes; what it leaves out waits too. In both cases pulls bring only what changed. `n_servers` run
    beside the first ranks, which count what they send; where ranks are on several machines, they are reached at
    `server_host`, which is rank 0's.
    """

    name = "parameter_server"
    synchronous = False
    own_optimisers = True
    consistency: Literal["bsp", "ssp", "asp"] = "bsp"
    staleness: int | None = None
    backup_workers: int = 0
    push_interval: int = 1
    pull_interval: int = 1
    double_buffer: bool = False
    send_above: float = 0.0
    n_servers: int = 1
    server_host: str | None = None
    _resources: ExitStack = field(init=False, default_factory=ExitStack)
    _weights: WholeWeights | BlockWeights | None = field(init=False, default=None)
    _pulling: Handle[FloatArray] | None = field(init=False, default=None)
    _advancing: Handle[int] | None = field(init=False, default=None)
    _server: ParameterServer | None = field(init=False, default=None)
    _restored: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.consistency not in ("bsp", "ssp", "asp"):
            raise ValueError(f"consistency must be bsp, ssp or asp, got {self.consistency!r}")
        if self.staleness is not None and self.consistency != "ssp":
            raise ValueError(f"staleness has no meaning with consistency={self.consistency!r}: use ssp")
        if self.staleness is not None and self.staleness < 1:
            raise ValueError(f"staleness must be at least 1, got {self.staleness}: use consistency='bsp' for 0")
        if self.backup_workers and self.consistency != "bsp":
            raise ValueError(f"backup_workers has no meaning with consistency={self.consistency!r}: use bsp")
        for name in ("push_interval", "pull_interval", "n_servers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.backup_workers < 0 or not self.send_above >= 0:
            raise ValueError("backup_workers and send_above must be at least 0")

    def check(self, context: RankContext) -> None:
        super().check(context)
        n_ranks = context.world_size
        for name, most in (("backup_workers", n_ranks - 1), ("n_servers", n_ranks)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most} with {n_ranks} ranks, got {getattr(self, name)}")
        if self.server_host is None and len(set(context.communicator.hosts)) > 1:
            raise ValueError("ranks are on several machines: give server_host, the address of the machine of rank 0")
        if self.n_servers > 1 and self.server_host is not None:
            raise ValueError("server_host is the address of one machine: use n_servers=1")
        if context.channel.compressor is not None:
            if self.send_above:
                raise ValueError("send_above and compression exclude each other: set send_above=0 or compression=None")
            single_payload_codec(context.channel.compressor, self.name)
        if not len(context.shard.owned):
            raise ValueError(f"rank {context.rank} has no rows: every worker of a parameter server needs some")

    # A run.

    def begin(self, context: RankContext) -> None:
        from dmlgbm.collectives.parameter_server import Store

        self._resources = ExitStack()
        self._weights = None
        self._pulling = self._advancing = self._server = None
        membership = self._start_servers(context)
        timeout = getattr(context.communicator, "timeout", 120.0)
        self._store: Store = self._resources.enter_context(Store(membership, context.rank, timeout))
        self._n_epochs = 0
        self._n_passes = 0
        self._n_counted = 0
        self._restored = {}
        rows = context.shard
        if rows.replicated:
            # Whoever is fast does more, so everybody draws from all rows: none must count less for its owner's speed.
            rows = rows.with_owned(np.arange(len(rows.numbers), dtype=np.int64))
        size = max(1, round(context.settings.batch_size / context.world_size))
        seed = hash_of(context.seed, "worker", context.rank)
        self._source = BatchSource(rows, size, context.settings.sampling, seed, 0, 1)

    def _start_servers(self, context: RankContext) -> Membership:
        """The coordinator on rank 0, its record to all ranks, a server on the first ones; TLS as ranks use it."""
        from dmlgbm.collectives.joining.addresses import Listener
        from dmlgbm.collectives.parameter_server import Coordinator, Membership, ParameterServer, StorePlan

        def listener() -> Listener:
            return Listener.tcp() if self.server_host is None else Listener.tcp(self.server_host)

        plan = StorePlan(
            self.n_servers,
            context.world_size,
            n_shards=self._n_parts,
            consistency=self._consistency(),
            worker_deadline_seconds=60.0,
            lease_seconds=20.0,
        )
        tls = context.communicator.tls
        record: dict[str, Any] = {}
        if context.rank == 0:
            coordinator = self._resources.enter_context(Coordinator(plan, listener(), tls=tls))
            record = coordinator.membership.as_dict()
        membership = Membership.from_dict(_broadcast(context, record), tls)
        if context.rank < self.n_servers:
            self._server = self._resources.enter_context(ParameterServer(membership, listener()))
        return membership

    @property
    def _n_parts(self) -> int:
        """Parts of the weights: enough for all servers, and one for a single server, which is served one by one."""
        return 1 if self.n_servers == 1 else max(4, self.n_servers)

    def _consistency(self) -> Consistency:
        from dmlgbm.collectives.parameter_server import asp, bsp, ssp

        if self.consistency == "bsp":
            return bsp(self.backup_workers)
        return asp() if self.consistency == "asp" else ssp(3 if self.staleness is None else self.staleness)

    def begin_epoch(self, context: RankContext) -> None:
        parameters = context.model.parameters
        if self._weights is None:
            self._weights = self._make_weights(context)
            self._weights.init(parameters)
            self._unsent = np.zeros_like(parameters)
            if self._restored:
                self._unsent[...] = self._restored["unsent"]
                self._weights.restore(self._unsent)
        # What was left out of earlier pushes belongs to this worker's model alone until it is sent.
        parameters += self._unsent
        self._sent_since_pull = np.zeros_like(parameters)
        self._n_unsent = self._n_steps = 0
        self._n_done = 0

    def _make_weights(self, context: RankContext) -> WholeWeights | BlockWeights:
        if self.send_above:
            return BlockWeights(self._store, self._n_parts, self.send_above)
        if context.channel.compressor is None:
            return WholeWeights(self._store, self._n_parts)
        codec = single_payload_codec(context.channel.compressor, self.name)
        return CodedWeights(self._store, self._n_parts, codec, [part.start for part in context.model.parts])

    def batches(self, context: RankContext, epoch: int) -> Iterator[Batch]:
        """Batches until all workers together have done those of an epoch."""
        quota = (self._n_epochs + 1) * context.batches.steps_per_epoch * context.world_size
        while True:
            self._n_passes += 1
            for batch in self._source.own_epoch(self._n_passes, self._source.size):
                if self._n_done >= quota:
                    return
                yield batch

    def step(self, context: RankContext, batch: Batch) -> float:
        parameters = context.model.parameters
        before = parameters.copy()
        loss = context.compute_gradients(batch, together=False)
        context.update()
        self._unsent += (parameters - before) * parameters.dtype.type(1.0 / context.world_size)
        self._n_unsent += 1
        self._n_steps += 1
        if self._n_steps % self.push_interval == 0:
            self._push(context)
        if self._n_steps % self.pull_interval == 0:
            self._pull(context)
        return loss / context.world_size

    def _push(self, context: RankContext, *, to_clock: int = 0) -> None:
        assert self._weights is not None
        with context.history.waiting():
            if self._n_unsent:
                sent = self._weights.push(self._unsent, self._n_unsent)
                self._sent_since_pull += sent
                self._unsent -= sent
                self._n_unsent = 0
            if self._advancing is not None:
                self._advancing.wait()
            self._advancing = self._store.advance_async(to=to_clock)

    def _pull(self, context: RankContext) -> None:
        if not self.double_buffer:
            self._pulling = self._start_pull()
            self._take(context)
            return
        if self._pulling is not None:
            self._take(context)
        self._pulling = self._start_pull()

    def _start_pull(self, min_clock: int | None = None) -> Handle[FloatArray]:
        assert self._weights is not None
        self._sent_since_pull[...] = 0
        return self._weights.start_pull(min_clock)

    def _take(self, context: RankContext) -> None:
        """Go on from what the last pull brings and what this worker has done since it began."""
        context.model.parameters[...] = self._read(context) + self._sent_since_pull + self._unsent

    def _read(self, context: RankContext) -> FloatArray:
        assert self._weights is not None
        assert self._pulling is not None
        with context.history.waiting():
            pulled, self._n_done = self._weights.read(self._pulling)
        self._pulling = None
        context.history.add_staleness(max(0, self._store.clock - self._store.reached))
        return pulled

    def finish_epoch(self, context: RankContext) -> None:
        """Leave the epoch, wait until all have left it, and take what they have made."""
        if self._pulling is not None:
            self._pulling.wait()
            self._pulling = None
        context.model.parameters[...] = self.meet(context)
        context.step = (context.epoch + 1) * context.batches.steps_per_epoch
        average_buffers(context)

    # For strategies that keep something else on the server.

    def exchange(self, context: RankContext, change: FloatArray) -> FloatArray:
        """Add a change to the weights, and what they are as soon as the consistency allows to know it."""
        self._unsent += change
        self._n_unsent += 1
        self._push(context)
        self._pulling = self._start_pull()
        return self._read(context)

    def meet(self, context: RankContext) -> FloatArray:
        """The weights after all workers have pushed what they had and called this; no clock of before counts then."""
        self._n_epochs += 1
        end = self._n_epochs * _CLOCKS_OF_AN_EPOCH
        self._push(context, to_clock=end)
        self._pulling = self._start_pull(end)
        values = self._read(context)
        context.communicator.barrier()  # so that a server has answered everybody before its bytes are counted
        sent = self._store.bytes_sent + (0 if self._server is None else self._server.bytes_sent)
        context.history.add_bytes(sent - self._n_counted)
        self._n_counted = sent
        return values

    def rank_state(self) -> dict[str, Any]:
        return {"unsent": self._unsent.copy(), "n_passes": self._n_passes}

    def restore_rank(self, state: dict[str, Any]) -> None:
        self._restored = state  # taken up when there are weights on a server
        self._n_passes = int(state["n_passes"])

    def end(self, context: RankContext) -> None:
        self._resources.close()


def _broadcast(context: RankContext, record: dict[str, Any]) -> dict[str, Any]:
    """Rank 0's record on every rank, as text."""
    text = np.frombuffer(json.dumps(record).encode(), np.uint8)
    if context.world_size == 1:
        return record
    return json.loads(context.communicator.all_gather_unequal(text)[0].tobytes())

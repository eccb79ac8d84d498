"""A method's learner: jobs are futures, and all jobs whose results are needed are trained in one call."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgefl.data.attackers import Attackers
from edgefl.methods.parts.local_part import OWN
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Layout, digest_of_model
from edgefl.randomness import generator
from edgefl.torch_settings import neutral_torch
from edgefl.training.engine_spec import Engine
from edgefl.training.evaluation import epoch_losses, evaluate_batches, in_main_memory, total
from edgefl.training.job import Digests, Evaluation, Feedback, JobId, Mixing, PeerMixing, TrainingJob
from edgefl.training.job_inputs import JobInputs, JobResolver, Received
from edgefl.training.job_task import ClientData, JobResult, JobTask, joined, split, within
from edgefl.training.kept_states import ClientStates, KeptModels, State
from edgefl.training.parts_of_models import PartsOfModel
from edgefl.training.peer_models import PeerModels
from edgefl.training.server_model import Outcome, ServerModel
from edgefl.training.wire import Wire

HORIZON = 16
"""Age in versions from which a discarded job is trained if a client state may depend on it.

Until then its model version is kept; without a limit, every client that abandoned a job would keep one for ever.
"""

_BLOCK = 512
"""Length of the blocks whose squares are summed in their own precision."""


class Distances:
    """‖a - b‖² over the parameters of two models ``[size]`` on one device.

    Buffers are excluded: batch norm's counters and variances are not distances in weight space. So is the local part,
    which the server does not receive.
    """

    def __init__(self, layout: Layout, like: Tensor) -> None:
        self._count, self._local = layout.parameter_count, layout.local_parameters
        # Whole blocks: the padding after a difference stays zero and adds nothing to the sum of squares.
        self._blocks = like.new_zeros(-(-self._count // _BLOCK), _BLOCK)
        self._difference = self._blocks.view(-1)[: self._count]

    def squared(self, vector: Tensor, other: Tensor) -> float:
        if vector is other:
            return 0.0
        found = float(self._squared(vector, other))
        # A block's sum may overflow float32 although the distance does not (a model that is diverging).
        return found if isfinite(found) else float(self._difference.double().square().sum())

    def all_squared(self, vectors: Sequence[Tensor], other: Tensor) -> list[float]:
        """:meth:`squared` of each vector, read from the device at once."""
        if not vectors:
            return []
        found = torch.stack([self._squared(vector, other) for vector in vectors]).tolist()
        return [
            each if isfinite(each) else self.squared(vector, other) for vector, each in zip(vectors, found, strict=True)
        ]

    def _squared(self, vector: Tensor, other: Tensor) -> Tensor:
        """Leaves the difference in the buffer."""
        difference = torch.sub(vector[: self._count], other[: self._count], out=self._difference)
        for place in self._local:
            difference[place] = 0
        # Blocks are summed in their own precision, their sums in float64: as exact as the differences, in a third of
        # the time.
        norms: Tensor = torch.linalg.vector_norm(self._blocks, dim=1)
        return norms.double().square().sum()


class MethodLearner:
    """Trains one method's jobs and aggregates them; implements :class:`~edgefl.training.job.Learner`.

    A job starts from the model version it received. With ``job.alpha`` < M only the last alpha blocks were received;
    the others are the client's own, from its ``previous`` job or, without one, from the initial model. A job's delta is
    its final weights minus the *server's* version, so that the mean of deltas is the mean of local models, whichever
    blocks were sent. If a codec rounds, both are the decoded values at the receiver, and the server's own model stays
    unrounded.

    A job must be submitted while its version is the latest, or while another job with the same version is pending.
    """

    def __init__(
        self,
        method: Method,
        model: BlockModel,  # the skeleton adapted by the method's objective; it is not modified
        initial: Tensor,  # the initial model x^0 [size], version 0
        data: ClientData,
        engine: Engine,
        *,
        seed: int = 0,  # the run's seed, for random choices of a codec
        kept_models: KeptModels | None = None,
        # the parts of the model that clients train, for methods with capacity levels
        parts: PartsOfModel | None = None,
        attackers: Attackers | None = None,  # the clients that change their updates
        peers: bool = False,  # each client has a model of its own, and there is no server
    ) -> None:
        self._method, self._attackers = method, attackers
        self._parts = parts
        self._model = model
        self._seed = seed
        self._kept_models = kept_models
        self.data = data
        self._engine = engine
        self._evaluation_mode = method.objective.evaluation_mode(model)
        self._resolver = JobResolver(method, model.layout, initial, data, parts)
        self._wire = Wire(method, model.layout, seed)
        self._server: ServerModel | PeerModels
        if peers:
            self._server = PeerModels(method.label, initial, data.clients)
        else:
            self._server = ServerModel(method, initial, model.layout, data.clients, self._wire, parts)
        self._distances = Distances(model.layout, initial)
        self._versions: dict[int, Received] = {0: self._server.sent}
        self._waiting: dict[JobId, TrainingJob] = {}
        self._discarded: set[JobId] = set()
        self._outcomes: dict[JobId, Outcome] = {}
        self._states = ClientStates()
        self._broadcast: dict[int, int] = {}
        self._feedback: dict[int, dict[JobId, Feedback]] = {}
        self._evaluations: dict[int, Evaluation] = {}
        self._initial, self._own = initial, dict[int, tuple[Tensor | None, Evaluation]]()
        self._digests = Digests("", digest_of_model(initial))

    def submit(self, job: TrainingJob) -> None:
        self._waiting[job.id] = job
        if self._method.state is not None:
            self._states.submitted(job)

    def received(self, client: int, version: int) -> None:
        self._broadcast[client] = version

    def discard(self, job: JobId) -> None:
        self._outcomes.pop(job, None)
        if job in self._waiting:
            self._discarded.add(job)
        self._forget()

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | PeerMixing | None = None) -> int:
        old = [id for id in self._discarded if self._waiting[id].version <= version - HORIZON]
        with neutral_torch(), torch.no_grad():
            self._train([*jobs, *old])
            before = digest_of_model(self._server.vector)
            arrived = {id: self._outcomes[id] for id in sorted(jobs)}
            self._server.update(arrived, round, mixing)
            self._versions[version + 1] = self._server.sent
            self._digests = Digests(before, digest_of_model(self._server.vector))
            if self._kept_models is not None:
                local = {id.client: outcome.final for id, outcome in arrived.items()}
                if isinstance(self._server, PeerModels):
                    local = dict(enumerate(self._server.sent.vector))
                self._kept_models.aggregated(self._server.vector, local)
            for client in {id.client for id in arrived}:
                self._feedback[client] = {}
            finals = [outcome.final for outcome in arrived.values()]
            distances = self._distances.all_squared(finals, self._server.vector)
            for (id, outcome), distance in zip(arrived.items(), distances, strict=True):
                feedback = Feedback(outcome.loss, outcome.first_loss, distance, outcome.drift)
                self._feedback[id.client][id] = feedback
                del self._outcomes[id]
                if self._method.state is not None:
                    self._states.aggregated(id)
                # The client has its own model now. A job that was discarded may be repeated from the broadcast.
                self._broadcast.pop(id.client, None)
        self._forget()
        return version + 1

    def rehearse(self, job: TrainingJob) -> None:
        """Train a job of the latest version as its client's first, for its duration; the result is discarded."""
        with neutral_torch(), torch.no_grad():
            self._engine.train([self._inputs(replace(job, previous=None)).task])

    def digests(self, version: int) -> Digests | None:
        return self._digests

    def feedback(self, job: JobId) -> Feedback:
        return self._feedback[job.client][job]

    def evaluate(self, version: int) -> Evaluation:
        """Metric and loss of a kept model version, with its ensemble's metric; computed once."""
        if version not in self._evaluations:
            own = self._method.objective.evaluates_clients
            if isinstance(self._server, PeerModels):
                found = self._peers_evaluated(self._server)
            else:
                model = self.model(version)
                found = self._clients_mean() if own else self._engine.evaluate(model, self._evaluation_mode)
            average = None if self._kept_models is None else self._kept_models.average
            if average is not None and version == self._server.version:
                found = found._replace(ensemble=self._engine.evaluate(average, self._evaluation_mode).metric)
            self._evaluations[version] = found._replace(model=digest_of_model(self.model(version)))
        return self._evaluations[version]

    def _clients_mean(self) -> Evaluation:
        """The mean of the clients' own models; those that have not trained have the initial one."""
        parts, found = self.local_parts(), []
        for client in range(self.data.clients):
            own = parts.get(client)
            place = -1 if own is None else client
            if place not in self._own or self._own[place][0] is not own:
                model = self._initial if own is None else self._model.layout.with_local_part(self._initial, own)
                self._own[place] = own, self._engine.evaluate(model, self._evaluation_mode)
            found.append(self._own[place][1])
        return Evaluation(fmean(each.metric for each in found), fmean(each.loss for each in found))

    def _peers_evaluated(self, peers: PeerModels) -> Evaluation:
        models, mean = peers.sent.vector, peers.vector
        each = [self._engine.evaluate(model.clone(), self._evaluation_mode) for model in models]
        metrics = sorted((one.metric for one in each), reverse=self._model.task.measured.better == "higher")
        return Evaluation(
            fmean(metrics),
            fmean(one.loss for one in each),
            worst=metrics[-1],
            best=metrics[0],
            mean_model=self._engine.evaluate(mean, self._evaluation_mode).metric,
            consensus_distance=fmean(self._distances.all_squared(list(models), mean)) ** 0.5,
        )

    def local_losses(self, version: int, clients: Sequence[int], images: int | None) -> list[float]:
        vector, task, losses = self.model(version), self._model.task, []
        with neutral_torch():
            for client in clients:
                chosen, held = None, self.data.samples(client)
                if images is not None and images < held:
                    draws = generator(self._seed, "local losses", version, client)
                    chosen = np.sort(draws.choice(held, size=images, replace=False))
                own = self.data.own(client, chosen)
                scores = evaluate_batches(vector, own.evaluation(), self._model, own, self._evaluation_mode)
                losses.append(total(scores, task).loss)
        return losses

    def model(self, version: int) -> Tensor:
        """The weights ``[size]`` of a kept model version; do not modify them.

        For versions before the latest, these are the weights that clients received, which a codec may have rounded.
        """
        return self._server.vector if version == self._server.version else self._versions[version].vector

    def local_parts(self) -> dict[int, Tensor]:
        """The part of the model that each client keeps for itself, after its last trained job, if it trained."""
        found: dict[int, Tensor] = {}
        for client, jobs in self._states.last_jobs.items():
            trained = [self._states.kept[job] for job in jobs if job in self._states.kept]
            if trained and OWN in trained[0]:
                found[client] = trained[0][OWN]
        return found

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The learner's complete state between two rounds: tensors by name, and the rest as JSON data."""
        outcomes = [(id, *split(outcome)) for id, outcome in self._outcomes.items()]
        parts: dict[str, Mapping[str, Tensor]] = {"server": self._server.state}
        parts |= {f"version/{version}": split(sent)[1] for version, sent in self._versions.items()}
        parts |= {f"outcome/{number}": tensors for number, (_, _, tensors) in enumerate(outcomes)}
        parts |= {f"state/{number}": state for number, state in enumerate(self._states.kept.values())}
        parts |= {} if self._kept_models is None else {"kept_models": self._kept_models.packed()}
        named = {f"{part}/{name}": tensor for part, each in parts.items() for name, tensor in each.items()}
        return {"latest": self._server.vector, **named}, {
            "version": self._server.version,
            "versions": list(self._versions),
            "waiting": [asdict(job) for job in self._waiting.values()],
            "discarded": [list(id) for id in sorted(self._discarded)],
            "outcomes": [[list(id), asdict(bare)] for id, bare, _ in outcomes],
            "states": [list(id) for id in self._states.kept],
            "tips": [[client, [list(id) for id in jobs]] for client, jobs in self._states.last_jobs.items()],
            "broadcast": [list(each) for each in self._broadcast.items()],
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Restore a state from :meth:`snapshot`; feedback of earlier rounds is discarded."""
        device = self._server.vector.device
        here = {name: tensor.to(device) for name, tensor in tensors.items()}
        version = int(facts["version"])
        self._versions = {
            each: joined(Received(None, {}), within(here, f"version/{each}"))  # type: ignore[arg-type]
            for each in facts["versions"]
        }
        self._server.resume(version, here["latest"], within(here, "server"), self._versions[version])
        waiting = [_job(each) for each in facts["waiting"]]
        self._waiting = {job.id: job for job in waiting}
        self._discarded = {JobId(*each) for each in facts["discarded"]}
        self._outcomes = {
            JobId(*id): joined(Outcome(**{**bare, "part": tuple(bare["part"])}), within(here, f"outcome/{number}"))
            for number, (id, bare) in enumerate(facts["outcomes"])
        }
        self._states = ClientStates(
            {JobId(*id): within(here, f"state/{number}") for number, id in enumerate(facts["states"])},
            {int(client): tuple(JobId(*id) for id in jobs) for client, jobs in facts["tips"]},
        )
        self._broadcast = {int(client): int(sent) for client, sent in facts["broadcast"]}
        self._feedback, self._evaluations = {}, {}
        if self._kept_models is not None:
            self._kept_models.restore(within(here, "kept_models"))

    def _train(self, jobs: Iterable[JobId]) -> None:
        needed = self._with_predecessors(jobs)
        while needed:
            ready = [job for job in needed.values() if job.previous not in needed]
            ready.sort(key=lambda job: job.id)
            inputs = [self._inputs(job) for job in ready]
            results = self._engine.train([each.task for each in inputs])
            losses = in_main_memory([each.cross_entropies for each in results])
            # Rows of one tensor, so that aggregation need not stack them.
            deltas = self._server.vector.new_empty(len(ready), len(self._server.vector))
            for place, job in enumerate(ready):
                result = replace(results[place], cross_entropies=losses[place])
                state, outcome = self._trained(job, inputs[place], result, deltas[place])
                if state is not None:
                    self._states.kept[job.id] = state
                if job.id not in self._discarded:
                    self._outcomes[job.id] = outcome
                self._discarded.discard(job.id)
                del needed[job.id], self._waiting[job.id]

    def _trained(
        self, job: TrainingJob, inputs: JobInputs, result: JobResult, delta: Tensor
    ) -> tuple[State | None, Outcome]:
        task, samples = inputs.task, self.data.samples(job.id.client)
        sent = self._versions[job.version].of(job.id.client).vector
        known = {**inputs.vectors, **result.kept}
        final = result.final if self._attackers is None else self._attacked(self._attackers, task, result.final)
        if self._parts is not None:
            final = self._parts.put_back(final, sent, job.level, job.round)
        if self._wire.exact_up:
            torch.sub(final, sent, out=delta)
            others: Mapping[str, Tensor] = {name: known[name] for name in self._method.server.reads}
            kept = self._method.state
            state: State | None = None if kept is None else kept.after(known, task.start, final, task.lr, job.steps)
        else:
            arrives = job.id not in self._discarded
            final, returned, others, state = self._wire.upload(job, task, final, sent, known, arrives=arrives)
            delta.copy_(returned)
        if self._attackers is not None and state is not None and "previous" in state:
            state = {**state, "previous": result.final}  # an attack changes what is sent, not the client's own model
        first_loss, loss = epoch_losses(result, self._method.local, samples)
        return state, Outcome(
            client=job.id.client,
            final=final,
            version=job.version,
            rate=task.lr,
            received=self._versions[job.version].broadcasts,
            samples=samples,
            steps=job.steps,
            loss=loss,
            first_loss=first_loss,
            drift=0.0 if self._parts is not None else self._distances.squared(task.start, sent),
            delta=delta,
            part=(job.alpha if self._method.objective.trains_last else job.level, job.round),
            others=others,
        )

    def _attacked(self, attackers: Attackers, task: JobTask, final: Tensor) -> Tensor:
        """What an attacker returns: its buffers, and what it keeps for itself, are honest."""
        layout = self._model.layout if self._parts is None else self._parts.of(task.level).model.layout
        first = self._model.depth - task.alpha if task.objective.trains_last else 0
        places = slice(layout.before(first)[0], layout.parameter_count)
        sent = attackers.sent(task.client, task.dispatch, task.start, final, places)
        return layout.with_local_part(sent, layout.local_part(final)) if layout.local else sent

    def _inputs(self, job: TrainingJob) -> JobInputs:
        front = None if job.front is None else self._versions[job.front].vector
        before = None if self._method.state is None else job.previous
        state = None if before is None else dict(self._states.kept[before])
        return self._resolver.resolve(job, self._versions[job.version].of(job.id.client), state, front)

    def _with_predecessors(self, jobs: Iterable[JobId]) -> dict[JobId, TrainingJob]:
        needed: dict[JobId, TrainingJob] = {}
        for id in jobs:
            job = self._waiting.get(id)
            while job is not None and job.id not in needed:
                needed[job.id] = job
                before = job.previous if self._method.state is not None else None
                job = None if before is None else self._waiting.get(before)
        return needed

    def _forget(self) -> None:
        wanted = self._with_predecessors([*(self._waiting.keys() - self._discarded), *self._states.tips()])
        self._waiting = {id: job for id, job in self._waiting.items() if id in wanted}
        self._discarded &= self._waiting.keys()
        self._states.keep(self._waiting.values())
        versions = {job.version for job in self._waiting.values()} | {self._server.version}
        versions |= {job.front for job in self._waiting.values() if job.front is not None}
        versions |= set(self._broadcast.values())
        self._versions = {version: sent for version, sent in self._versions.items() if version in versions}
        self._evaluations = {version: known for version, known in self._evaluations.items() if version in versions}


def _job(values: Mapping[str, Any]) -> TrainingJob:
    previous = values["previous"]
    return TrainingJob(**{**values, "id": JobId(*values["id"]), "previous": previous and JobId(*previous)})

import math
import subprocess
import sys

from edgefl.training.job import Feedback, JobId, TrainingJob
from edgefl.training.neutral import NeutralLearner


def test_versions_count_up_and_every_number_is_neutral():
    learner = NeutralLearner()
    for round in range(3):
        job = TrainingJob(JobId("fedbr", 0, 5, round), round, round, alpha=2, steps=4)
        learner.submit(job)
        assert learner.aggregate(round, [job.id], round) == round + 1
        assert learner.feedback(job.id) == Feedback(loss=0.0, first_loss=0.0, distance=1.0, drift=0.0)
        evaluation = learner.evaluate(round + 1)
        assert all(math.isnan(each) for each in (evaluation.metric, evaluation.loss, evaluation.ensemble))


def test_the_world_can_talk_to_training_without_importing_torch():
    modules = "edgefl.training.job, edgefl.training.neutral, edgefl.training.faults"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The Gaudi readiness report of a simulated run.

Data flow: record -> aggregate -> merge -> findings -> render.

- Record: :mod:`~hpu_sim.report.session` runs in every process that acquires a device. It receives the device's events
  and writes one record file per process.
- Aggregate: :mod:`~hpu_sim.report.sites` counts events in bounded memory. Sites are source lines
  (:mod:`~hpu_sim.common.frames`) with a cause. Steps come from :mod:`~hpu_sim.prediction.steps`;
  :mod:`~hpu_sim.report.step_clock` predicts the time of one.
- Merge: :mod:`~hpu_sim.report.merge` combines the records of all ranks into one report. The format of records and
  reports is :mod:`~hpu_sim.report.schema`.
- Findings: :mod:`~hpu_sim.report.findings` applies the rules to the lines of :mod:`~hpu_sim.report.source_lines`.
- Render: :mod:`~hpu_sim.report.view` makes a :mod:`~hpu_sim.common.document`, which terminals and browsers show.

:mod:`hpu_sim.cli.recorded_run` runs a command with all of that around it.
"""

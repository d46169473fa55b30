"""A real Kubernetes cluster on this machine, for tests and demos.

`build` compiles it, `control_plane` and `node` start it, `plugin` has the pytest fixtures, and
`python -m tests.cluster up` starts one by hand.
"""

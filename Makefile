# The front door: every target is one call of the Python code in scripts/, where the logic is.

.DEFAULT_GOAL := help
# `make build test -j` would otherwise set up the machine twice at once.
.NOTPARALLEL:
override SHELL := /bin/sh
override run := .venv/bin/python -m scripts
override PYTHONPATH := entrypoint
export PYTHONPATH
# With it Python would not look into this folder.
unexport PYTHONSAFEPATH

# make expands a variable of the command line, $(shell ...) included, when it exports it to a recipe. So
# Python gets each as it was typed, under another name, and judges the name too. The loop's own variable has
# a dot because make exports no such name: one that a user can give would hide itself from the loop.
$(foreach .name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(.name)))), \
    $(eval unexport $(.name)) $(eval export TORCH_POOL_CLI_$(.name) := $$(value $(.name)))))
unexport MAKEFLAGS MFLAGS MAKEOVERRIDES

.PHONY: help
help: ## this list
	@awk -F ' *## ' '/^[a-z-]+:.* ## / { sub(/:.*/, "", $$1); printf "make %-12s %s\n", $$1, $$2 }' Makefile
	@echo "Variables, as in make build PROFILE=infer, stand with their defaults in .env.example."

.PHONY: build
build: venv ## build, check and tag one image: make build PROFILE=infer
	@$(run) $@

.PHONY: build-all
build-all: venv ## build, check and tag every image
	@$(run) $@

.PHONY: list
list: venv ## the images, and which of them are built
	@$(run) $@

.PHONY: render
render: venv ## write images/*/Dockerfile from Dockerfile.j2
	@$(run) $@

.PHONY: test
test: venv ## all tests; brings the tools that they use
	@$(run) $@

.PHONY: test-gpu
test-gpu: ## tests on a GPU: any Python with CUDA torch and pytest, no Docker
	@python3 -m pytest tests/gpu

.PHONY: lint
lint: venv ## format, style, types, Dockerfiles, shell scripts
	@$(run) $@

.PHONY: selftest
selftest: venv ## prove the profile of a built image: make selftest PROFILE=infer
	@$(run) $@

.PHONY: shell
shell: venv ## a shell in a built image: make shell PROFILE=infer
	@$(run) $@

.PHONY: pin
pin: venv ## write the digests of the registry bases into their table
	@$(run) $@

.PHONY: lock
lock: venv ## resolve the locked requirements anew
	@$(run) $@

.PHONY: size
size: venv ## unpacked and compressed size of a built image
	@$(run) $@

.PHONY: bench-build
bench-build: venv ## measure the builds and print the table
	@$(run) $@

.PHONY: bench-launch
bench-launch: venv ## measure what a launch costs and write docs/benchmarks/launch.md
	@$(run) $@

.PHONY: clean
clean: venv ## remove what the builds left: images, caches, build/
	@$(run) $@

.PHONY: venv
venv:
	@python3 -m scripts.bootstrap

.PHONY: install check test wheel clean

install: ## make .venv with relight and its tools
	scripts/setup

check: install ## lint, format, types, imports
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

test: install ## all tests that can run here
	scripts/test

wheel: install ## dist/relight-*.whl
	.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

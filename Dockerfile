# One image for web, worker, beat and watcher; docker-compose.yml shows which command is which.

FROM node:22-slim AS pages
WORKDIR /app
COPY package.json package-lock.json ./
COPY scripts scripts
COPY static static
RUN npm ci --no-audit --no-fund && npm run vendor

FROM python:3.13-slim AS python
ENV UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON_DOWNLOADS=never
WORKDIR /app
RUN pip install --no-cache-dir uv==0.13.8
COPY pyproject.toml uv.lock .python-version ./
RUN uv sync --locked --no-default-groups --group build
COPY . .
COPY --from=pages /app/static static
RUN .venv/bin/python scripts/compile_messages.py \
    && DEPLOYMENT=local SLICEDESK_STATE_DIR=/tmp/build STATIC_ROOT=/app/collected \
       .venv/bin/python manage.py collectstatic --noinput --verbosity=0

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /app slicedesk
WORKDIR /app
COPY --from=python --chown=root:root /app /app
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DEPLOYMENT=production \
    STATIC_ROOT=/app/collected \
    SLICEDESK_STATE_DIR=/tmp/slicedesk
USER slicedesk
EXPOSE 8000
CMD ["uvicorn", "portal.asgi:application", "--host=0.0.0.0", "--port=8000", "--no-access-log", \
     "--timeout-graceful-shutdown=5"]

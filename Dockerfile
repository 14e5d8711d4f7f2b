# A model in a container: docker build -t rent . && docker run -p 8080:8080 -e LOCALMA_TOKEN=... rent
FROM python:3.12-slim
RUN pip install 'localma[serve]'
# Compile once, for all servers with AVX2.
ENV NUMBA_CACHE_DIR=/opt/numba-cache NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES=""
RUN localma warm-up && chmod -R a+rwX /opt/numba-cache
COPY rent.localma /srv/rent.localma
USER 1000
EXPOSE 8080
CMD ["localma", "serve", "/srv/rent.localma", "--host", "0.0.0.0", "--port", "8080", "--workers", "2"]

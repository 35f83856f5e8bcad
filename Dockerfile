# docwharf as a container: one static program on nothing but root certificates. `docker build -t docwharf .`
#
# It needs no shell, no /tmp and no writable root: `--read-only --cap-drop=ALL --security-opt=no-new-privileges` and any
# user work. As process 1 it answers SIGTERM itself and ends with 0. Times in its log, and those of `sync.schedule`, are UTC.
FROM docker.io/library/rust:1.95-bookworm AS build
# musl-gcc compiles the C code in it (ring, SQLite, zstd), for a program that needs no library at all.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates musl-tools \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# What `docwharf version` says it was built from: there is no repository in here.
ARG REVISION=
ENV DOCWHARF_COMMIT=$REVISION
# Each platform builds for itself (x86_64 or aarch64): other machines are emulated by the builder, not cross-compiled here.
RUN target="$(uname -m)-unknown-linux-musl" \
    && rustup target add "$target" \
    && cargo build --release --locked --bin docwharf --target "$target" \
    && install -d -m 1777 /out/data \
    && cp "target/$target/release/docwharf" /out/docwharf \
    && /out/docwharf --version

FROM scratch
ARG SOURCE=unknown
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="docwharf" \
      org.opencontainers.image.description="Verifies, seals and serves static documentation bundles" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# The program, and /data with mode 1777: a new volume takes its mode from there. The user of the container (an
# arbitrary UID on OpenShift) must be able to make the store in it, and no other user is in here. Volumes of a pod get their
# group from `fsGroup`. They are copied from above, because a folder that is itself the target of a copy loses its mode.
COPY --from=build /out/ /
ENV DOCWHARF_STORE__PATH=/data \
    DOCWHARF_SERVER__LISTEN=0.0.0.0:8080 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
VOLUME /data
# 8443 is for DOCWHARF_TLS__LISTEN with a mounted certificate; DOCWHARF_SERVER__LISTEN= (empty) then ends 8080.
EXPOSE 8080 8443
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/docwharf", "health"]
ENTRYPOINT ["/docwharf"]
CMD ["run"]

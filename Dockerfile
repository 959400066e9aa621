# Images for those who have a container engine; `make images` needs none.
#
#	docker build --target agent --build-arg COMMIT=$(git rev-parse HEAD) -t fenceline/agent:0.1.0 .
#	docker build --target controller --build-arg COMMIT=$(git rev-parse HEAD) -t fenceline/controller:0.1.0 .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY internal internal
COPY apis apis
COPY bpf bpf
COPY agent agent
COPY cni cni
COPY controller controller
ARG VERSION=0.1.0
ARG COMMIT=unknown
RUN name=github.com/fenceline/fenceline/internal/version; for part in agent cni controller; do \
      CGO_ENABLED=0 go build -trimpath -o /out/$part \
        -ldflags "-s -w -X $name.release=$VERSION -X $name.commit=$COMMIT" ./$part || exit 1; \
    done

FROM scratch AS agent
COPY --from=build /out/agent /agent
COPY --from=build /out/cni /cni
ENTRYPOINT ["/agent"]

FROM scratch AS controller
COPY --from=build /out/controller /controller
ENTRYPOINT ["/controller"]

# Images for those who have a container engine; `make images` needs none.
#
#	docker build --target agent -t fenceline/agent:0.1.0 .
#	docker build --target controller -t fenceline/controller:0.1.0 .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY apis apis
COPY bpf bpf
COPY agent agent
COPY cni cni
COPY controller controller
RUN for part in agent cni controller; do \
      CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /out/$part ./$part || exit 1; \
    done

FROM scratch AS agent
COPY --from=build /out/agent /agent
COPY --from=build /out/cni /cni
ENTRYPOINT ["/agent"]

FROM scratch AS controller
COPY --from=build /out/controller /controller
ENTRYPOINT ["/controller"]

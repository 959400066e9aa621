# Everything runs on a Debian machine with Go, git, make and root. The first target that needs a
# package or a third-party program installs or builds it. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
VERSION ?= 0.1.0

export GOTOOLCHAIN := local
# One flavour of builds for tests, rigs, images and third-party programs, so that they share what is
# compiled. The race detector of test-race is the other one. The heap of compiler and linker grows to
# five times the live data between collections: 286 s of CPU for the agent from an empty cache, not 342.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath '-toolexec=env GOGC=400'
# The directory of the suites' counts, which `make test` adds up.
export COUNT_DIR := $(CURDIR)/.cache/counts
# The directory in which networks of tests record their frames, by suite.
frames := $(CURDIR)/.cache/frames

thirdparty := $(GO) run ./test/cmd/thirdparty
count := $(GO) run ./test/cmd/count
cluster := $(GO) run ./test/cmd/cluster

# The build tags of all suites, for tools that read the whole code.
tags := model,kernel,api,cluster,bench,guest,nftables,frames,browser,machine
suites := unit race browser kernel api cluster fuzz bench model frames
# Make test runs the first ones alone, and then the others beside the timed ones, with less priority. The steady
# ones take the place of the timed ones: their clocks stand still while the machine does something else.
first := unit browser
timed := kernel cluster
steady := guest-pods
others := race api fuzz model bench guest-oldest

##@ See it

.PHONY: try
try: ## Show the plugin without Kubernetes in network namespaces (root)
	$(GO) run ./test/cmd/try

.PHONY: demo
demo: packages ## Start a real cluster, show the promises on it, and remove it
	$(GO) run ./test/cmd/demo -version $(VERSION)

.PHONY: cluster-up
cluster-up: packages ## Start a cluster with Fenceline, a router and CoreDNS, and print how to use it
	$(cluster) up -fenceline $(VERSION)

.PHONY: cluster-down
cluster-down: ## Remove that cluster
	$(cluster) down

##@ Build

OS ?= $(shell $(GO) env GOOS)
ARCH ?= $(shell $(GO) env GOARCH)
.PHONY: images
images: ## Build images/*.tar without a container engine, for other nodes with ARCH=arm64
	$(GO) run ./test/cmd/images -version $(VERSION) -arch $(ARCH) -out images

.PHONY: command
command: ## Build bin/kubectl-fenceline, for another machine with OS=darwin ARCH=arm64
	GOOS=$(OS) GOARCH=$(ARCH) $(GO) build -o bin/kubectl-fenceline$(if $(filter windows,$(OS)),.exe) \
	  -ldflags "-s -w -X github.com/fenceline/fenceline/internal/version.release=$(VERSION) -X github.com/fenceline/fenceline/internal/version.commit=$$(git rev-parse HEAD)" ./cli

# Variables: REGISTRY, HOST or HOST/PATH, to push to it; KEY, the file of a private key, to sign.
.PHONY: release
release: ## Build dist/, all that version VERSION publishes, and push it to REGISTRY, signed with KEY
	@$(GO) run ./test/cmd/release -version '$(VERSION)' $(if $(REGISTRY),-registry '$(REGISTRY)') $(if $(KEY),-key '$(KEY)')

.PHONY: generate
generate: packages ## Write all generated files
	$(GO) generate ./bpf/...
	PATH="$$($(thirdparty) dir controller-gen):$$PATH"; \
	  controller-gen object paths=./apis/... paths=./controller/podview/... && \
	  controller-gen crd paths=./apis/... output:crd:dir=charts/fenceline/files/crds
	"$$($(thirdparty) dir crd-ref-docs)/crd-ref-docs" --log-level=ERROR --source-path=apis/v1alpha1 \
	  --config=apis/reference/config.yaml --templates-dir=apis/reference --renderer=markdown --output-path=docs/api.md

# What the page and the site are built and tested with. npm 10 or newer comes with Node 20.
page-tools := controller/page/web/node_modules/.package-lock.json
site-tools := docs/site/node_modules/.package-lock.json
$(page-tools) $(site-tools): %/node_modules/.package-lock.json: %/package.json %/package-lock.json
	cd $* && npm ci --ignore-scripts --prefer-offline && touch node_modules/.package-lock.json

.PHONY: ui
ui: $(page-tools) ## Test the code of the page, and build it into controller/page/dist (Node 20)
	cd controller/page/web && npm test && npm run build

.PHONY: verify-ui
verify-ui: ui ## Check that controller/page/dist is made of the code in git (Node 20)
	git diff --exit-code -- controller/page/dist

# Variables: BASE, the path before the version where the site will stand, such as /fenceline.
site-make = cd docs/site && VERSION='$(VERSION)' BASE='$(BASE)' npm run
.PHONY: site
site: $(site-tools) ## Build site/VERSION, the documents as a site with links and headings checked (Node 20)
	$(site-make) build

.PHONY: site-serve
site-serve: site ## Build it, and show it on this machine
	$(site-make) serve

##@ Test

.PHONY: check
check: lint-format lint-licence ## Check format and licences, vet, and run all tests that need neither root nor a package
	@$(GO) build -o .cache/vet ./test/cmd/vet && $(GO) vet -vettool=.cache/vet ./...
	@$(count) run check ./...

# A file in queue names a suite that nobody has begun. After the timed suites, which the file timed stands for,
# their lane takes from the end.
queue := $(COUNT_DIR)/queue
take = if rm "$(queue)/$$suite" 2>/dev/null; then $(1) $(MAKE) --no-print-directory test-$$suite || true; fi
# On a slow machine, the kernel suite leaves less than a seventh of the processors idle in its first 90 s.
# Suites with deadlines would starve beside it, so they come after the timed ones.
slow := [ "$$(vmstat 90 2 | awk 'END { print $$15 }')" -lt 15 ]
timeless := fuzz model
.PHONY: test
test: packages ## Run all suites, and add up their counts
	@$(count) reset && rm -rf "$(queue)" && mkdir "$(queue)" && touch $(patsubst %,"$(queue)"/%,timed $(steady) $(others))
	@for suite in $(first); do $(MAKE) --no-print-directory test-$$suite || true; done
	@{ set -- $(others); ! $(slow) || set -- $(timeless); \
	    for suite; do $(call take,nice -n 10); done; \
	    while [ -e "$(queue)/timed" ] && kill -0 $$$$; do sleep 1; done; \
	    for suite in $(steady) $(others); do $(call take,nice -n 10); done; \
	  } >"$(COUNT_DIR)/others.log" 2>&1 & \
	  for suite in $(timed); do $(MAKE) --no-print-directory test-$$suite || true; done; rm "$(queue)/timed"; \
	  for suite in $$(printf '%s\n' $(steady) $(others) | tac); do $(call take); done; \
	  wait; cat "$(COUNT_DIR)/others.log"
	@$(MAKE) --no-print-directory test-frames || true; $(count) total $(suites) api-oldest $(guest-oldest) $(guest-pods)

.PHONY: test-unit
test-unit: packages ## Run the tests that need neither root nor a rig
	@$(count) run unit ./...

# Linking takes most of the time, so packages without goroutines and locks are left out. Count is built
# first: with cgo, all its packages would be compiled once more.
.PHONY: test-race
test-race: packages ## Run these tests of the packages with goroutines or locks, with the race detector
	@$(GO) build -o .cache/count ./test/cmd/count
	@CGO_ENABLED=1 .cache/count run race -race $$(git grep -lE '^[^/]*\bgo [a-zA-Z_.]+\(|"sync"|"sync/atomic"|x/sync|"testing/synctest"' -- '*.go' | xargs -n1 dirname | sort -u | sed 's,^,./,')

.PHONY: test-browser
test-browser: $(page-tools) $(site-tools) ## Have headless Chromium judge the page and the site (Node 20; root the first time)
	@$(thirdparty) packages chromium
	@$(count) run -tag browser -show browser -count=1 -timeout=10m

# Variables: FUZZTIME of each target, a duration or executions such as 1000000x; RUN for the targets
# with this text in their names; GUIDED=1 to build with coverage, which leads the search.
FUZZTIME ?= 5s
.PHONY: fuzz
fuzz: packages ## Run every fuzz target of the parsers and the BPF programs (root)
	@$(count) fuzz -time $(FUZZTIME) $(if $(GUIDED),-guided) $(if $(RUN),-run '$(RUN)')

.PHONY: test-fuzz
test-fuzz:
	@$(MAKE) --no-print-directory fuzz FUZZTIME=10000x

.PHONY: test-model
test-model: packages ## Check the model of lease, claim, ack and token, and that each of its rules is needed
	@$(count) run -tag model -show model -timeout=30m

# Agents and tests spend 12 % less CPU when their heaps grow to five times the live data.
test-kernel test-api test-cluster test-migration: export GOGC := 400

# Most of these tests wait. Two packages at once use both CPUs; their namespaces, mounts and ports differ.
.PHONY: test-kernel
test-kernel: packages ## Run the tests that need namespaces and BPF (root)
	@$(thirdparty) build etcd etcdtools kubernetes cniplugins tuning arping prometheus
	@rm -rf $(frames)/kernel && mkdir -p $(frames)/kernel
	@FENCELINE_TEST_FRAMES=$(frames)/kernel $(count) run -tag kernel kernel -timeout=30m -p=2 -parallel=4

.PHONY: test-frames
test-frames: packages ## Have Wireshark judge the frames that the last runs of test-kernel and test-cluster recorded
	@FENCELINE_TEST_FRAMES=$(frames) $(count) run -show frames -tags frames -count=1 -run '^TestTshark' ./test/wireshark

# The tests whose result depends on the API server's version: rules of records, fields, selectors,
# watches and rights. They run at the oldest minor too.
oldest := (agent/lease|agent/allocate|agent/waiting|agent/hostlink/cidr|internal/owner)\.|(test/records\.TestRecordsAndPolicies|controller\.TestController)$$$$
.PHONY: test-api
test-api: packages ## Run the tests that need a real API server, at the newest and the oldest supported minor
	@$(thirdparty) build etcd kubernetes kubernetes-oldest helm prometheus
	@mkdir -p "$(COUNT_DIR)"; status=0; \
	  FENCELINE_TEST_KUBERNETES=oldest $(count) run -tag api -only '$(oldest)' api-oldest -timeout=30m -p=2 -parallel=16 >"$(COUNT_DIR)/api-oldest.log" 2>&1 & oldest=$$!; \
	  $(count) run -tag api api -timeout=30m -p=3 -parallel=16 || status=1; \
	  wait $$oldest || status=1; \
	  cat "$(COUNT_DIR)/api-oldest.log"; exit $$status

.PHONY: test-cluster
test-cluster: packages ## Run the tests that need real kubelets and an underlay (root)
	@$(thirdparty) build etcd kubernetes containerd cniplugins multus whereabouts coredns helm
	@rm -rf $(frames)/cluster && mkdir -p $(frames)/cluster
	@FENCELINE_TEST_FRAMES=$(frames)/cluster $(count) run -tag cluster cluster -timeout=40m

# Variables: KERNELS, and RUN for a single test. Kernels before 6.6 have no tcx: the tag notcx leaves
# out the tests that need it.
KERNELS ?= 5.10 6.1 6.12 newest
guest := $(CURDIR)/.cache/guest
guest-packages := ./bpf ./agent/segment ./agent/hostlink ./agent/parent/subinterface
.PHONY: test-guest
test-guest: packages guest ## Run the tests of bpf and of parts of the agent on other kernels, in emulated machines
	@status=0; for kernel in $(KERNELS); do \
	  case $$kernel in 5.10|6.1) tags=kernel,guest,notcx;; *) tags=kernel,guest;; esac; \
	  $(count) run guest-$$kernel -tags $$tags -count=1 -p=1 -timeout=45m -exec "$(guest) -kernel $$kernel -timeout 45m" $(if $(RUN),-run '$(RUN)') -skip '^TestGuestWithoutIPv6$$' $(guest-packages) || status=1; \
	  [ -n "$(RUN)" ] || $(count) run guest-pod-$$kernel -tags $$tags -count=1 -timeout=5m -exec "$(guest) -kernel $$kernel" -run '^TestGuest' ./agent/pod || status=1; \
	done; \
	[ -n "$(RUN)" ] || $(MAKE) --no-print-directory -k test-guest-ipv4 test-guest-admin test-guest-agent test-guest-sriov test-guest-ovs || status=1; exit $$status

.PHONY: test-migration
test-migration: packages ## Migrate an emulated virtual machine between nodes MIGRATIONS times, 50 by default, and measure its pause (root)
	@$(count) run -show migration -tags kernel,machine -count=1 -timeout=40m -run '^TestAMachine(Migrates|KeepsItsAddress)$$' ./test/nodes -args -migrations $(or $(MIGRATIONS),50)

# The tests of IPv4 on the newest kernel, started without IPv6, in which no program reads the kernel's memory.
.PHONY: test-guest-ipv4
test-guest-ipv4: KERNELS := newest
test-guest-ipv4: packages guest
	@$(count) run guest-ipv4 -tags kernel,guest -count=1 -p=1 -timeout=30m -exec "$(guest) -kernel newest -parameters 'ipv6.disable=1 lockdown=confidentiality'" \
	  -run '^(TestGuestWithoutIPv6|TestNobodyAnswersForAFreeAddress|TestForeignHostAnswersTheProbe|TestVerdictOnAGuardedZombieIsFencedAndItIsMute|TestAClaimInAVLANFencesAndIsAcked)$$/^(IPv4|agent_alive)$$/^(IPv4)?$$' \
	  ./agent/hostlink ./agent/segment

.PHONY: test-guest-admin
test-guest-admin: packages guest ## Run the test of what NET_ADMIN can forge on kernels with nftables, in emulated machines
	@status=0; for kernel in $(KERNELS); do \
	  case $$kernel in 5.10|6.1) tags=kernel,guest,nftables,notcx;; *) tags=kernel,guest,nftables;; esac; \
	  $(count) run guest-admin-$$kernel -tags $$tags -count=1 -timeout=5m -run '^TestNET_ADMIN' \
	    -exec "$(guest) -kernel $$kernel -modules macvlan,veth,bridge,sch_ingress,cls_bpf,crc32c_generic,nf_tables,xfrm_user" ./bpf || status=1; \
	done; exit $$status

# The unit suite needs no kernel of arm64: QEMU emulates its programs one by one.
.PHONY: test-arm64
test-arm64: KERNELS := 6.12
test-arm64: packages ## Run the unit suite, and bpf and agent/segment on a kernel, for arm64 in emulated machines
	@$(thirdparty) build arm64-qemu $(KERNELS:%=arm64-linux-%)
	@$(GO) build -o .cache/ ./test/cmd/guest ./test/cmd/count && GOARCH=arm64 $(GO) build -o .cache/arm64-guest ./test/cmd/guest
	@status=0; \
	[ -n "$(RUN)" ] || GOARCH=arm64 test/cmd/guest/emulated.sh "$$($(thirdparty) dir arm64-qemu)/usr/bin/qemu-aarch64" .cache/count run arm64-unit -timeout=30m ./... || status=1; \
	for kernel in $(KERNELS); do \
	  case $$kernel in 5.10|6.1) tags=kernel,guest,notcx;; *) tags=kernel,guest;; esac; \
	  GOARCH=arm64 .cache/count run arm64-$$kernel -tags $$tags -count=1 -p=1 -timeout=60m -exec "$(guest) -arch arm64 -kernel $$kernel -timeout 60m" $(if $(RUN),-run '$(RUN)') ./bpf ./agent/segment || status=1; \
	done; exit $$status

guest-plugins := $(CURDIR)/.cache/guest-plugins
reference := github.com/containernetworking/plugins/plugins
.PHONY: test-guest-plugin
test-guest-plugin: packages guest ## Run the tests of the stand-alone plugin on ipvlan, VLANs and bonds, in emulated machines
	@mkdir -p $(guest-plugins)
	@$(GO) build -o $(guest-plugins)/ $(reference)/main/macvlan $(reference)/main/ipvlan $(reference)/main/vlan \
	  $(reference)/main/dummy $(reference)/ipam/host-local
	@$(GO) build -o $(guest-plugins)/fenceline ./cni
	@status=0; for kernel in $(KERNELS); do \
	  $(count) run guest-plugin-$$kernel -tags kernel,guest -count=1 -timeout=10m -run '$(or $(RUN),^TestGuest)' \
	    -exec "$(guest) -kernel $$kernel -files $(guest-plugins)" ./cni -args -plugins=$(guest-plugins) || status=1; \
	done; exit $$status

guest-sriov := $(CURDIR)/.cache/guest-sriov
guest-sriov-packages := ./test/vf ./test/nodes
guest-suite := guest-sriov
# The shell variable kernel names the kernel. The flags of the guest follow.
guest-sriov-run = case $$kernel in 5.10|6.1) tags=kernel,guest,notcx;; *) tags=kernel,guest;; esac; \
  FENCELINE_TEST_PROGRAMS=$(guest-sriov) $(count) run -show $(guest-suite)-$$kernel -tags $$tags -count=1 -p=1 -parallel=1 -timeout=30m -run '$(or $(RUN),^TestGuest)' $(if $(RUN),,-skip OpenVSwitch) \
    -exec "$(guest) -kernel $$kernel -sriov -server -files $(guest-sriov) $(1)" $(guest-sriov-packages)
.PHONY: test-guest-sriov
test-guest-sriov: guest-sriov-programs ## Run the tests of virtual functions of emulated network cards, in emulated machines
	@status=0; for kernel in $(KERNELS); do $(call guest-sriov-run) || status=1; done; exit $$status

.PHONY: test-guest-agent
test-guest-agent: guest-suite := guest-agent
test-guest-agent: guest-sriov-packages := ./test/nodes
test-guest-agent: RUN := ^(TestNothingIsLostWhereverADDAndDELBreakOff|TestOldPodsKeepTheRoutesOfTheirPool|TestPodsOnABridgeAreGuardedAtTheNodesEnd|TestAGuestBehindABridgeInItsPodOwnsTheAddress)$$
test-guest-agent: guest-sriov-programs ## Run tests of whole agents with pods on macvlan and on bridges on other kernels, in emulated machines
	@status=0; for kernel in $(KERNELS); do $(call guest-sriov-run,-steady) || status=1; done; exit $$status

.PHONY: test-guest-ovs
test-guest-ovs: guest-suite := guest-ovs
test-guest-ovs: guest-sriov-packages := ./test/nodes
test-guest-ovs: RUN := ^TestGuestPodsOnOpenVSwitch$$
test-guest-ovs: guest-ovs-programs ## Run the test of pods on Open vSwitch, with Debian's daemons and ovs-cni, in emulated machines
	@status=0; for kernel in $(KERNELS); do $(call guest-sriov-run) || status=1; done; exit $$status

.PHONY: guest-sriov-programs
guest-sriov-programs: packages guest
	@$(thirdparty) build etcd kubernetes sriovcni cniplugins
	@mkdir -p $(guest-sriov)
	@$(GO) build -ldflags='-s -w' -o $(guest-sriov)/ ./agent ./controller ./cni $(reference)/main/macvlan $(reference)/main/ipvlan $(reference)/main/host-device
	@cp "$$($(thirdparty) dir sriovcni)/sriov" "$$($(thirdparty) dir cniplugins)/bridge" $(guest-sriov)/

.PHONY: guest-ovs-programs
guest-ovs-programs: guest-sriov-programs
	@$(thirdparty) build ovscni openvswitch
	@mkdir -p $(guest-sriov)/openvswitch
	@cp "$$($(thirdparty) dir ovscni)/ovs" $(guest-sriov)/
	@ovs="$$($(thirdparty) dir openvswitch)"; cp -L "$$ovs"/usr/bin/ovs-vsctl "$$ovs"/usr/bin/ovsdb-tool "$$ovs"/usr/sbin/ovsdb-server \
	  "$$ovs"/usr/lib/openvswitch-switch/ovs-vswitchd "$$ovs"/usr/share/openvswitch/vswitch.ovsschema \
	  "$$ovs"/lib/*/*.so.? "$$ovs"/usr/lib/*/*.so.? "$$ovs"/usr/lib/*/*.so.?? $(guest-sriov)/openvswitch/

# The rows without which no pod on a virtual function would be safe, and what guards, fences and
# ipvlan need of the oldest kernel.
guest-oldest := guest-bpf-5.10 guest-ipvlan-5.10 guest-capabilities-5.10
guest-pods := guest-sriov-5.10 guest-sriov-newest
guest-oldest-run = $(count) run $(1) -tags kernel,guest,notcx -count=1 -timeout=10m -exec "$(guest) -kernel 5.10 -files $(CURDIR)/charts/fenceline/values.yaml" $(2)
.PHONY: test-guest-ci test-guest-oldest test-guest-pods
test-guest-ci: ## Run the most important of these tests on the oldest and the newest kernel
	@rm -f $(patsubst %,"$(COUNT_DIR)"/%.json,$(guest-oldest) $(guest-pods))
	@$(MAKE) --no-print-directory -k -j2 -Otarget test-guest-oldest test-guest-pods || true
	@$(count) total $(guest-oldest) $(guest-pods) | sed '$$s/^/guest-ci: /'

test-guest-oldest test-guest-pods: KERNELS := 5.10 newest
test-guest-oldest: packages guest
	@status=0; $(call guest-oldest-run,guest-ipvlan-5.10,-run IPVLAN ./agent/segment) || status=1; \
	  $(call guest-oldest-run,guest-capabilities-5.10,-run CapabilitiesOfTheChart ./agent/guards/sources) || status=1; \
	  $(call guest-oldest-run,guest-bpf-5.10,-run 'Fence|Claim|HostLink' -skip 'WithoutAGap|ASlotIsInUse' ./bpf) || status=1; exit $$status

test-guest-pods: RUN := ^TestGuest(PodsOnVFs|AZombieOnAVFIsFenced|AVFWithoutAnInterface)$$/^(.*_IPAM|v4|v6)$$
test-guest-pods: guest-sriov-packages := ./test/vf
test-guest-pods: guest-sriov-programs
	@mkdir -p "$(COUNT_DIR)"; \
	  for kernel in $(KERNELS); do { $(call guest-sriov-run,-steady -timeout 60m); } >"$(COUNT_DIR)/guest-sriov-$$kernel.log" 2>&1 & done; \
	  wait; cat $(guest-pods:%="$(COUNT_DIR)"/%.log)

.PHONY: guest
guest:
	@$(thirdparty) build qemu $(KERNELS:%=linux-%)
	@$(GO) build -o $(guest) ./test/cmd/guest

# Variables: FOCUS and SKIP, regular expressions over the names of cases; PROXY, nftables or iptables.
.PHONY: test-conformance
test-conformance: packages ## Run the [sig-network] conformance cases of Kubernetes on a cluster (root)
	@$(thirdparty) build etcd kubernetes containerd cniplugins coredns helm e2e userland
	@$(GO) run ./test/cmd/conformance $(if $(FOCUS),-focus '$(FOCUS)') $(if $(SKIP),-skip '$(SKIP)') $(if $(PROXY),-proxy $(PROXY))

# Variables: LIFECYCLES, and SEED to repeat the faults of an earlier run.
.PHONY: soak
soak: packages ## Start and end 2000 pods while components fail at random (root)
	@$(thirdparty) build etcd kubernetes cniplugins tuning
	FENCELINE_SOAK_LIFECYCLES=$(or $(LIFECYCLES),2000) FENCELINE_SOAK_SEED=$(SEED) \
	  $(GO) test -tags kernel -count=1 -timeout=90m -v -run '^TestSoak$$' ./test/soak

benchmarks = $(count) run -tag bench -with kernel,api -figures docs/bench.md
.PHONY: bench
bench: packages ## Run the benchmarks, and compare their figures with the recorded ones (root)
	@$(thirdparty) build etcd kubernetes cniplugins helm
	@$(benchmarks) -show $(record) bench -benchtime=1s -timeout=30m

.PHONY: bench-record
bench-record: record := -record
bench-record: bench ## Run the benchmarks, and write their figures to docs/bench.md (root)

# No benchmark is long in the short form. Figures do not matter, so two packages share the machine.
.PHONY: test-bench
test-bench: packages ## Run every benchmark once in a small form, which shows that it works (root)
	@$(thirdparty) build etcd kubernetes cniplugins helm
	@$(benchmarks) bench -short -p=2 -timeout=10m

# Variables: AGENTS, how many play; ZONE, the nodes that are lost at the end, with 20 leases each; LEASES, further
# leases for the last figure of memory; ROUNDS, how often each kind of write is measured.
AGENTS ?= 0 500 1000 2000 5000
ZONE ?= 1000
LEASES ?= 50000
ROUNDS ?= 5
.PHONY: scale
scale: packages ## Play the agents of a large cluster against a real API server (root)
	@$(thirdparty) build etcd kubernetes
	FENCELINE_SCALE_AGENTS='$(AGENTS)' FENCELINE_SCALE_ZONE=$(ZONE) FENCELINE_SCALE_LEASES=$(LEASES) FENCELINE_SCALE_ROUNDS=$(ROUNDS) \
	  $(GO) test -tags bench -count=1 -timeout=3h -v -run '^TestManyNodes$$' ./test/scale

##@ Check

lints := lint-format lint-licence lint-vet lint-golangci lint-bpf lint-chart

.PHONY: lint $(lints)
lint: $(lints) ## Check format, licences, style, chart and alert rules (-k: all, although one fails)

lint-format:
	@files="$$(git ls-files '*.go' | xargs gofmt -l)"; test -z "$$files" || { echo "gofmt: $$files"; exit 1; }

lint-licence:
	@files="$$(git ls-files '*.go' | xargs grep -L -e '^// SPDX-License-Identifier: Apache-2.0$$' -e '^// Code generated')"; \
	  test -z "$$files" || { echo "no SPDX-License-Identifier: $$files"; exit 1; }

# golangci-lint vets all packages with the other tags.
lint-vet:
	@$(GO) build -o .cache/vet ./test/cmd/vet
	$(GO) vet -vettool=.cache/vet -tags kernel,guest,notcx $(guest-packages) $(guest-sriov-packages)

lint-golangci:
	"$$($(thirdparty) dir golangci-lint)/golangci-lint" run --allow-parallel-runners --build-tags $(tags)

lint-bpf: packages
	clang-format-14 --dry-run -Werror $$(git ls-files 'bpf/src/*.c' 'bpf/src/*.h' ':!bpf/src/headers')

lint-chart:
	"$$($(thirdparty) dir helm)/helm" lint --strict charts/fenceline
	"$$($(thirdparty) dir prometheus)/usr/bin/promtool" check rules charts/fenceline/files/alerts.yaml

.PHONY: verify
verify: generate ## Check that the generated files are those in git
	git diff --exit-code -- bpf apis charts/fenceline/files controller/podview docs/api.md

.PHONY: packages
packages: # Debian packages; quick when all are installed
	@$(thirdparty) packages

.PHONY: help
help: ## List the targets
	@awk -F':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { split($$1, target, ":"); printf "  %-16s %s\n", target[1], $$2 }' Makefile

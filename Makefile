# Everything a developer or CI runs. `make` or `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# As released, and for all, linters too, so that nothing is compiled twice, nor once more in another clone. The build time is the commit's, so that the same commit builds the same bytes.
export CGO_ENABLED ?= 0
export GOFLAGS ?= -trimpath
BINARIES := netmaster netplugin netctl contivk8s contivlab
PLUGIN ?= contiv/netplugin:$(basename $(file <VERSION))
VERSION ?= $(file <VERSION)-dev.$(shell git log -1 --format=%cd --date=format:%Y%m%d%H%M%S 2>/dev/null || echo 0)+$(shell git describe --exclude='*' --always --dirty=.dirty 2>/dev/null || echo unknown)
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
BUILDTIME := $(shell git log -1 --format=%cI 2>/dev/null || echo unknown)
LDFLAGS := -s -w $(foreach p,github.com/contiv/netplugin/v2/internal/daemon main,-X $(p).version=$(VERSION) -X $(p).commit=$(COMMIT) -X $(p).buildTime=$(BUILDTIME))
# PKG narrows test, lint, bench and fuzz: make test-unit PKG=./internal/store/...
PKG ?= ./...
tool = GOFLAGS='$(GOFLAGS) -mod=readonly' go tool -modfile=tools/go.mod $(1)
# They take minutes and mostly wait, so they begin first, and there are more packages and tests at a time than processors.
LONGEST = $(if $(filter ./...,$(PKG)),./internal/datapath/ebpf ./internal/datapath/ovs ./internal/store/etcd ./internal/netmaster/membership)
# Everything but what links the etcd server, which the race detector makes too slow to compile for every run.
RACE = $(shell go list -test -f '{{if .ForTest}}{{.ForTest}} {{join .Deps ","}}{{end}}' $(PKG) | grep -v go.etcd.io/etcd/server | cut -d' ' -f1 | sort -u)
.PHONY: help deps build test test-unit test-lab test-matrix test-full test-race check chaos-operator lint fmt mutate vulncheck generate test-kernel test-consul test-cluster test-compose test-bgp test-kube test-packages fuzz bench-cluster bench-datapath bench-scale bench chaos demo demo-docker demo-kube image plugin packages docs release clean
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
deps: ## install the Debian packages that tests and demo need; start no service
	@tools/deps.sh
build: ## build bin/netmaster, netplugin, netctl, contivk8s, contivlab
	go build -trimpath -ldflags '$(LDFLAGS)' -o $(or $(OUT),bin)/ $(addprefix ./cmd/,$(BINARIES))
test: deps ## lint (it vets too), unit and integration tests: all that CI runs but a sample of test-kube; needs root
	$(MAKE) -Oline -j2 test-unit lint # the longest unit tests mostly wait for the kernel
	$(MAKE) test-lab
test-unit: ## tests that need neither root nor packages
	tools/gotest.sh -timeout 20m -p $$(($$(nproc)+3)) -parallel $$(($$(nproc)+2)) -- $(LONGEST) $(PKG) && go -C internal/netmaster/aci/acitest/clienttest test ./...
test-matrix: deps ## clusters of all runtimes, securities, stores, drivers ... in rows that have all pairs of them, on a Consul and a Kubernetes that are built first: each run goes on for FOR (25m) where test/matrix/report.json ends, or ROW="runtime=docker driver=ovs" alone; needs root
	@tools/deps.sh podman
	CONTIV_KUBE=$${CONTIV_KUBE:-$$(tools/kube.sh -nodes)} CONTIV_CONSUL=$${CONTIV_CONSUL:-$$(go tool -modfile=tools/consul/go.mod -n consul)} go test -timeout 60m -count=1 -v -tags integration -run '^TestMatrix$$' ./test/matrix -args $(if $(ROW),-row "$(ROW)",-for $(or $(FOR),25m) -report report.json)
test-lab: ## tests with real data planes, etcd and namespaces; needs root and `make deps`
	tools/test-lab.sh $(BINARIES)
test-full: deps ## all that `make test` takes samples of: every test on every driver, in every way, all cases; needs root
	go test -timeout 40m -count=1 -p 1 ./internal/datapath/ebpf ./internal/datapath/ovs ./internal/datapath/conformance -full
	go test -timeout 50m -count=1 -p 1 -tags integration ./test/chaos ./test/slice -full
test-race: ## unit tests under the race detector, without those that link etcd's server
	CGO_ENABLED=1 go test -timeout 10m -race $(RACE)
chaos-operator: deps ## COUNT (500) random operator mistakes by SEED (1) on a running lab, DRIVER=ebpf|ovs|ebpf,ovs, STORE=embedded|etcd; needs root
	go test -timeout 4h -count=1 -v -tags integration ./test/chaos -args -open -plan $(or $(SEED),1) -mistakes $(or $(COUNT),500) -drivers $(if $(DRIVER),$(DRIVER),ebpf,ovs) -store $(or $(STORE),embedded)
chaos: deps ## the chaos ledger, docs/reliability.md: ROWS (all; word,word) of FOR (5m) each that have no report of this code; needs root
	go run ./bench/ledger -for $(or $(FOR),5m) -only "$(ROWS)"
lint: ## golangci-lint, staticcheck included, pinned in tools/go.mod (the first run builds it); names, phrases, and the style and links of pages
	nice env $(call tool,golangci-lint) run --allow-parallel-runners $(PKG) && go test -vet=off -run 'Names|Page|Links' ./internal/archtest
test-kernel: ## the eBPF driver on Debian's KERNELS (6.1), Open vSwitch's kernel datapath on 6.12, SCTP's sockets on both, in QEMU; minutes with KVM, else an hour
	tools/deps.sh kernel && tools/test-kernel.sh $(or $(KERNELS),6.1)
	tools/test-kernel.sh -suite ovs 6.12
test-consul: deps ## the store's tests, and whole clusters, on a Consul that is built first (minutes); needs root
	tools/test-consul.sh
test-cluster: deps ## three netmasters and five agents under faults: OPS (4000) requests by SEED (1) on STORE=embedded|etcd|disk (an etcd whose disk fails)|consul|consul3 (three servers)|members (netmasters' own, some lost for good, the disk of one fails), netmasters as MASTERS=inside|program (processes whose clocks are set), judged; or MOVES=20: how soon another netmaster leads, on etcd, consul, consul3, members; needs root
	$(if $(filter consul%,$(STORE)),CONTIV_CONSUL=$$(go tool -modfile=tools/consul/go.mod -n consul) )go test -timeout 4h -count=1 -v -tags integration ./test/cluster -run '^Test($(if $(filter-out 0,$(MOVES)),LeaderTasksMoveInTime,Cluster|DiskKeepsWritesAndFailsOnRequest|FailingMemberDiskHarmsNoOther|ClockCanBeSet))$$' -args -moves $(or $(MOVES),0) -plan $(or $(SEED),1) -ops $(or $(OPS),4000) -store $(or $(STORE),embedded) -masters $(or $(MASTERS),inside)
test-compose: deps ## Compose files on a plain and a secure cluster with Compose 1.29 and v2, which is built first (minutes); needs root
	CONTIV_COMPOSE=$$(go tool -modfile=tools/compose/go.mod -n github.com/docker/compose/v2/cmd) go test -timeout 10m -count=1 -v -tags integration ./test/docker -run '^(TestDockerOnSecureCluster|TestComposeFilesRunOnAPlainCluster|TestComposeTutorialWorksAsWritten)$$'
test-bgp: ## the BGP speaker, and netplugins with it, with FRR and BIRD in namespaces; needs root
	tools/deps.sh bgp && go test -timeout 10m -count=1 -v -tags integration ./test/bgp
test-kube: deps ## tests with a real Kubernetes, which is built first (minutes); PART=own|sample|netpol|clusternetworkpolicy|services|zones|dualstack|network|reports, DRIVER=ebpf|ovs; needs root
	tools/test-kube.sh $(PART)
test-packages: deps ## the commands of install.md and secure.md of docs/how-to in machines made by mmdebstrap, in which systemd runs; needs root and network
	@tools/deps.sh packages
	CONTIV_DEBIAN=$$(tools/debian.sh) go test -timeout 15m -count=1 -v -tags integration ./test/packages
check: ## vet, lint and -short tests of what changed since BASE (main), or of PKG: a minute for a leaf package, four for internal/model
	@nice tools/check.sh $(filter-out ./...,$(PKG))
fmt: ## format with gofumpt and gci
	$(call tool,golangci-lint) fmt $(PKG)
mutate: ## change the lines of PKG that changed since BASE (empty: all) one by one, and run the tests of PKG, or TESTS="./x ./y": prints the changes that no test fails on; DECISIONS=1: the files of test/mutate/decisions.txt (that fit ONLY), each run going on for FOR (1h) where test/mutate/report.tsv ends; needs root
	nice go run ./test/mutate -only "$(or $(ONLY),.)" $(if $(filter-out 0,$(DECISIONS)),-decisions -report test/mutate/report.tsv -for $(or $(FOR),1h),-base "$(BASE)" -tests "$(TESTS)" $(PKG))
vulncheck: ## known vulnerabilities in what the binaries call; needs network
	$(call tool,govulncheck) ./cmd/...
generate: ## rewrite generated files, pictures and goldens; `git diff` then shows the drift
	go generate ./... && tools/pictures.sh
	for d in $$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -r -n1 dirname | sort -u); do go test -count=1 $$d -update; done
fuzz: ## run every fuzz target for FUZZTIME (30s)
	go list -f '{{.Dir}}' $(PKG) | while read -r dir; do for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go 2>/dev/null | cut -c6-); do \
	    echo "$$dir $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzzminimizetime 1s -fuzztime $(or $(FUZZTIME),30s) $$dir; done; done
bench-cluster bench-datapath bench-scale: deps ## whole clusters; a packet's way on eBPF; a thousand simulated agents (some 25 minutes; ARGS=-small: five); rewrite bench/results; need root
	go run ./$(subst -,/,$@) -out bench/results $(ARGS)
bench: bench-cluster bench-datapath ## that, and benchmarks into bench/new.txt, compared with bench/base.txt by benchstat
	go test -run '^$$' -bench . -benchmem -count $(or $(COUNT),6) $(PKG) | tee bench/new.txt
	@if [ -f bench/base.txt ]; then $(call tool,benchstat) bench/base.txt bench/new.txt; fi
demo: build ## three hosts, two tenants, policies, live; DRIVER=ebpf|ovs|mixed; KEEP=1 leaves it running
	@tools/deps.sh demo $(DRIVER) && bin/contivlab demo $(if $(DRIVER),--driver $(DRIVER)) $(if $(filter-out 0,$(KEEP)),--keep)
demo-docker: build deps ## two Docker engines on two hosts, names, policy, start times; KEEP=1 leaves it running
	bin/contivlab demo-docker $(if $(filter-out 0,$(KEEP)),--keep)
demo-kube: build deps ## a Kubernetes of two nodes, which is built first (minutes), beside it a Docker container and a bare process under the same policies, and a pod of another tenant; KEEP=1 keeps it until Ctrl-C
	go build -o bin/demo-kube ./test/kube/demo && CONTIV_KUBE=$${CONTIV_KUBE:-$$(tools/kube.sh -nodes)} exec bin/demo-kube $(if $(filter-out 0,$(KEEP)),-keep)
image: build ## bin/contiv-image.tar, an image IMAGE (docker.io/contiv/contiv:VERSION) of the programs alone
	go run ./packaging/image -bin bin -o bin/contiv-image.tar -name $(or $(IMAGE),docker.io/contiv/contiv:$(file <VERSION)) -time $(BUILDTIME) -revision $(COMMIT)
plugin: build ## bin/plugin for `docker plugin create $(PLUGIN)`
	packaging/docker-plugin/build.sh bin bin/plugin $(PLUGIN)
packages: build ## bin/*.deb and *.rpm of the programs in bin
	rm -f bin/contiv-*.deb bin/contiv-*.rpm && tools/packages.sh $(VERSION) $$(go env GOARCH) bin bin
docs: ## a static site of docs/ with a search, bin/contiv-docs-VERSION.tar.gz, built by npm; TEST=1 opens every page in Chromium
	tools/site.sh bin $(if $(filter-out 0,$(TEST)),test)
release: ## dist/: archives, packages, images, chart and plugin of VERSION for amd64 and arm64 with checksums, signed with RELEASE_KEY; refuses when a long report, or the checkout, is not of this commit's code
	tools/release.sh
clean: ; rm -rf bin dist bench/new.txt ## remove what was built

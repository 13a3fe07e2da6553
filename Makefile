# `make help` lists the targets. The recipes are thin: what they do, anybody can type.

GO       ?= go
BIN      := bin
RELEASE  := $(shell sed -n 's/^const Release = "\(.*\)"$$/\1/p' internal/version/version.go)
COMMIT   := $(shell git describe --always --abbrev=12 --exclude='*' --dirty=.dirty 2>/dev/null)
VERSION  ?= $(RELEASE)$(addprefix +,$(COMMIT))
LDFLAGS  := -s -w -X github.com/percolator-go/percolator/internal/version.stamped=$(VERSION)
TIMEOUT  ?= 15m
# The packages that take longest, so that the others run beside them.
FIRST    := ./test/torture ./node ./test/cluster ./store/... ./internal/simtest ./test/torture/soak
# How many packages are tested at once: half as many again as there are processors, since most wait for much of their time.
PACKAGES ?= $(shell expr $$(nproc) \* 3 / 2)
FUZZTIME ?= 20s
SEEDS    ?= 20
DURATION ?= 10m
SEED     ?= 1
ARGS     ?=

# golangci-lint is built once per version, into bin/.
LINT_VERSION := v2.15.0
LINT         := $(BIN)/golangci-lint-$(LINT_VERSION)

# What must also hold under the race detector: everything that runs goroutines. Whole nodes and clusters take many minutes of
# it; of them `race` has one simulation, and the tests of nodes but for those that take longest, which show by thousands of
# changes what others do by a few. It also leaves out tests in which a single goroutine drives a model through many states,
# flips one bit after the other, or cuts off what it does at one place after the other, and those that fill the memory of
# package rpc, whose concurrency others cover. `race-long` leaves out none.
RACE      ?= . ./internal/actorkit/... ./internal/certs/... ./internal/cli/... ./internal/httpd/... ./internal/rpc/... ./internal/txn/... \
	./store/... ./actors/... ./cluster/... ./percolatortest/...
RACE_LONG ?= ./node/... ./internal/simtest/...
RACE_SKIP_NODE  := BackfillIsPaced|BackfillResumes|BacklogIsWorkedOffInOrder|BadObserversHarmNobody|BankWhileALeaderIsCutOff|DeadWorkersWork|ExactCounting|GrowsAndShrinks|HeavyTransactions|IdleTabletsAreNotWalked|LoaderIsSlowedByBacklog|OneDirtyRowAmongMany|OpensBesideLostTablets|ReplicaFallsBehind|UnreadableStore|Workloads
RACE_SKIP_STORE := BatchesAgainstModel|BitRotAtOpen|CommitLimits|CompactionWaitsForFiles|CursorGivesItsRows|FailedOpenLeavesNothing|Kill|LargeBatchCutShort|ManyChunksGo|MemTableIsLowered|OldVersionsGo|OpenCutShort|OpenRefuses|PowerLossFindsMissingSync|SnapKeepsItsVersions|TornState
RACE_SKIP_LOG   := BitFlips|Model|ReplayAfterKill|ReplayAfterPowerLoss|ReplayFindsMissingSync|ReplayTornState|TornFrame
RACE_SKIP_RPC   := AnswersAreBounded|OperationsAreBounded
RACE_SKIP_ACTOR := CollectionAgainstModel|CrashAnywhere|DestroyCutShort|EvenBytes|FairStart|InstallCutShort|NotifyIndexIsTheStore|Random|Replay|SnapshotBitFlips
RACE_SKIP_OTHER := BadLines|ForgettingMakesRoom|NothingCommandsTheTerminal
RACE_SKIP       ?= ^Test($(RACE_SKIP_NODE)|$(RACE_SKIP_STORE)|$(RACE_SKIP_LOG)|$(RACE_SKIP_RPC)|$(RACE_SKIP_ACTOR)|$(RACE_SKIP_OTHER))$$

.DEFAULT_GOAL := build
.PHONY: help build check test race bench bench-peers bench-cluster bench-backup backup-kill bench-start pauses demo generate lint vet fuzz broken corpus webindex-kill webindex-torture supplychain-kill history power soak torture figure10 simtest simtest-broken clean grow attack idle race-long random modules memory device release release-check deploy-check upgrade

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/percolator
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/percolator ./cmd/node

check: ## everything that CI runs
	./.ci/run

# Without vet, which is a part of lint.
test: ## all tests, without the race detector
	$(GO) test -vet=off -p $(PACKAGES) -timeout $(TIMEOUT) $(FIRST) ./...

race: ## the tests of everything that runs goroutines, under the race detector, long ones left out
	$(GO) test -race -p $(PACKAGES) -short -vet=off -timeout $(TIMEOUT) -skip '$(RACE_SKIP)' ./node $(RACE)
	$(GO) test -race -vet=off -timeout $(TIMEOUT) -run '^TestSimulations$$' ./internal/simtest -seeds 1

race-long: ## all of these tests, with all of whole nodes and of simulated clusters
	$(GO) test -race -short -timeout $(TIMEOUT) $(RACE_LONG) $(RACE)

bench: ## the figures, as ratios in one run; ARGS are passed on
	$(GO) run ./bench $(ARGS)

bench-costs: ## what metrics, console and traces take from a node, by turns; ARGS are passed on
	$(GO) run ./bench -only costs -callers 64 -rounds 9 -duration 2s $(ARGS)

bench-peers: ## beside an embedded etcd, in one run; ARGS='-documents 20000': beside PostgreSQL (Debian: apt-get install postgresql)
	cd bench/peers && $(GO) run . $(ARGS)

bench-cluster: build ## transactions on three processes; ARGS='-builds base,bin' compares builds by turns
	$(GO) run ./bench/cluster $(ARGS)

pauses: build ## longest wait of 32 callers while tablets split, merge and move, and while a disk fills; fails above 2 s; ARGS='-sync-delay 5ms'; needs root
	$(GO) run ./bench/pauses $(ARGS)

bench-backup: build ## what a backup of SIZE=1024 MiB takes from a load beside it, by turns; ARGS are passed on
	$(GO) run ./bench/backup $(if $(SIZE),-size $(SIZE)) $(ARGS)

bench-start: ## what a start takes on ROWS="20000 200000 2000000" rows of 500 bytes, and how that grows
	$(if $(ROWS),ROWS='$(ROWS)') $(GO) test -run '^$$' -bench '^BenchmarkStart$$' -benchtime 10x ./node $(ARGS)

demo: build ## one node, the web index loaded into it, a summary; ARGS=--exit ends by itself
	$(GO) -C examples/webindex/webindex build -trimpath -ldflags '$(LDFLAGS)' -o ../../../$(BIN)/webindex .
	$(BIN)/webindex $(ARGS)

generate: ## Go code from the .proto files, and the references of metrics, commands and errors from the code
	$(GO) tool -modfile=tools/go.mod buf generate
	UPDATE=1 $(GO) test -count=1 -run '^TestReferenceOf' ./node/telemetry ./internal/cli

# Beside the main module, so that the product does not depend on what they need.
MODULES := bench/peers examples/webindex/webindex test/figure10/plot test/s3 tools

modules: ## the modules beside the main one: tidy, vetted, tested
	@set -e; for m in $(MODULES); do echo "== $$m"; $(GO) -C $$m mod tidy -diff; $(GO) -C $$m vet ./...; $(GO) -C $$m test ./...; done

release: ## dist/: static binaries for PLATFORMS, bills of materials, checksums
	GO='$(GO)' VERSION='$(RELEASE)' ./scripts/release

release-check: ## the same sources built in two places give the same static binaries
	GO='$(GO)' VERSION='$(RELEASE)' ./scripts/release --check

# Not a part of check: it compiles kustomize, Kubernetes' types and BuildKit for files that seldom change.
deploy-check: ## the files of deploy/, read by the libraries of those who will read them
	cd deploy/check && $(GO) test -count=1 -v .

vet:
	$(GO) vet ./...

# go vet is one of the linters, which leave generated code out. With its usual GOGC it spends half of its time on collecting
# garbage; the memory that it may take instead is limited.
lint: $(LINT) ## the linters of .golangci.yml, and go vet
	$(GO) vet ./api/... ./internal/wire
	GOGC=400 GOMEMLIMIT=4GiB $(LINT) run ./...

$(LINT):
	@mkdir -p $(BIN)
	GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $(BIN)/golangci-lint $@

random: ## the random tests of single packages, with more seeds than `make test` has
	HISTORIES=100000 $(GO) test -count=1 -timeout $(TIMEOUT) -run '^TestHistories$$' ./internal/mvcc
	$(GO) test -count=1 -timeout $(TIMEOUT) -run '^TestRandomWebs$$' ./examples/webindex/index -webs 3000
	PLACEMENTS=300 $(GO) test -count=1 -timeout $(TIMEOUT) -run '^TestEvenBytes$$' ./actors/placement

fuzz: ## every fuzz target for FUZZTIME
	GO='$(GO)' ./scripts/fuzz $(FUZZTIME)

broken: ## each deliberately broken build must be caught by its named assertion
	$(GO) run ./internal/broken/catch $(ARGS)

corpus: ## a larger corpus for the web index, from Debian's documentation packages, in corpus/
	./scripts/corpus

webindex-kill: ## kill -9 in the middle of the load, restart, verify; SEEDS times
	KILLED=$(SEEDS) $(GO) -C examples/webindex/webindex test -count=1 -v -timeout 0 -run '^TestKilled$$' .

# Apart, since only many packages take so long that each kill meets many runs.
supplychain-kill: ## the supply chain on three nodes, each killed amid a cascade, and its import, compared with the batch; ROUNDS=10, SEED, PACKAGES=5000
	$(GO) test -count=1 -v -timeout $(DURATION) -run '^TestKilledProcesses$$' ./examples/supplychain -rounds $(or $(ROUNDS),10) -seed $(SEED) -packages $(or $(PACKAGES),5000)

soak: ## one node: load, edit, split, kill, pause and verify for DURATION, choices from SEED; ARGS are passed on
	$(GO) run ./test/torture -faults soak -duration $(DURATION) -seed $(SEED) $(ARGS)

torture: ## all workloads against a cluster of processes under one fault after the other; needs root
	$(GO) run ./test/torture -duration $(DURATION) -seed $(SEED) $(ARGS)

backup-kill: build ## backups and restores of SIZE=1024 MiB under load, with the commands and the nodes killed, compared row by row
	$(GO) run ./test/backup -seed $(SEED) $(if $(SIZE),-size $(SIZE)) $(if $(filter command,$(origin DURATION)),-duration $(DURATION)) $(ARGS)

simtest: ## SEEDS simulated clusters under faults, from SEED on, in virtual time; NODES=5 has five nodes each
	$(GO) test ./internal/simtest -run '^TestSimulations$$' -timeout 0 -seeds $(SEEDS) -seed $(SEED) -nodes $(or $(NODES),0) $(ARGS)

simtest-broken: ## each deliberately broken build that a simulation can notice must fail one within ten minutes; SOUND=12: the control, of the sound build
	SEED=$(SEED) ./scripts/simtest-broken $(ARGS)

webindex-torture: ## the web index on three nodes, which are killed and to which two are added during the load; verified; needs root
	$(GO) run ./test/torture -faults webindex -duration 60s -seed $(SEED) $(ARGS)

grow: ## one process becomes three, then five, then three again, under writes; of four, one is lost, replaced, and comes back
	GROW=1 $(GO) test -count=1 -timeout $(TIMEOUT) -v ./test/grow

upgrade: ## three nodes of an earlier build (FROM=a revision; KNOWS=2-2 has it know version 2 alone; default: this source, which then does) are exchanged one by one, back and forth for DURATION, under load and kill -9, choices from SEED
	FROM='$(FROM)' KNOWS='$(KNOWS)' DURATION=$(DURATION) SEED=$(SEED) $(GO) test -count=1 -timeout 0 -v ./test/upgrade

attack: ## huge messages, idle and half-open connections, open transactions, clients that do not read or send half; PROFILES=folder for a failed run's heaps
	ATTACK=1 $(GO) test -count=1 -timeout $(TIMEOUT) -v ./test/attack

figure10: ## the paper's figure 10, into docs/: throughput while a third of six nodes is killed at once; needs root
	$(GO) run ./test/figure10 -csv docs/figure10.csv $(ARGS)
	cd test/figure10/plot && $(GO) run . ../../../docs/figure10.csv

idle: ## what TABLETS=1000 idle tablets on NODES=3 processes take of a core, over DURATION=60s; PROFILES=folder for profiles
	IDLE=1 $(GO) test -count=1 -timeout 1h -run '^TestIdle$$' -v ./test/idle $(ARGS)

memory: ## 32 callers write 10 KB values into a node in a cgroup of MEMORY=1073741824 bytes ("none": no limit), over DURATION=60s; needs root
	MEMORY=$(or $(MEMORY),1073741824) $(GO) test -count=1 -timeout 1h -run '^TestLimit$$' -v ./test/memory $(ARGS)

device: build ## bytes that reach the block device, for each transaction and for the web index; ARGS='-build base,bin' compares builds; needs root
	$(GO) -C examples/webindex/webindex build -trimpath -ldflags '$(LDFLAGS)' -o ../../../$(BIN)/webindex .
	$(GO) run ./test/device -build $(BIN) $(ARGS)

history: ## overwrite 1 MiB COUNT times with ten seconds of history, and look at what the directory takes
	HISTORY=$(or $(COUNT),10000) $(GO) test -count=1 -timeout 2h -run '^TestHistorySpace$$' -v ./actors/tablet

power: ## ROUNDS=200 kills, and as many power losses on a loop-mounted ext4, of a store, and some of a node; needs root
	./scripts/power

clean: ## remove bin/
	rm -rf $(BIN)

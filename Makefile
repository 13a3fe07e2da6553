# `make help` lists the targets. Recipes are single commands that can also be typed by hand.

GO       ?= go
BIN      := bin
RELEASE  := $(shell sed -n 's/^const Release = "\(.*\)"$$/\1/p' internal/version/version.go)
COMMIT   := $(shell git describe --always --abbrev=12 --exclude='*' --dirty=.dirty 2>/dev/null)
VERSION  ?= $(RELEASE)$(addprefix +,$(COMMIT))
LDFLAGS  := -s -w -X github.com/percolator-go/percolator/internal/version.stamped=$(VERSION)
TIMEOUT  ?= 15m
# The slowest packages, started first so that the others run in parallel with them.
FIRST    := ./test/torture ./node ./test/cluster ./store/... ./internal/simtest ./test/torture/soak
# The number of packages tested at once: 1.5 per processor, since most tests mostly wait.
PACKAGES ?= $(shell expr $$(nproc) \* 3 / 2)
FUZZTIME ?= 20s
SEEDS    ?= 20
DURATION ?= 10m
SEED     ?= 1
ARGS     ?=

# golangci-lint is built once per version, into bin/.
LINT_VERSION := v2.15.0
LINT         := $(BIN)/golangci-lint-$(LINT_VERSION)

# The packages tested under the race detector: all that run goroutines. Whole nodes and clusters take many minutes under it, so
# `race` runs one simulation and skips the slowest tests of nodes, which repeat with thousands of changes what others show with
# a few. It also skips tests in which a single goroutine drives a model through many states, flips each bit or interrupts an
# operation at each point, and those that fill the memory of package rpc, whose concurrency others cover. `race-long` skips none.
RACE      ?= . ./internal/actorkit/... ./internal/certs/... ./internal/cli/... ./internal/httpd/... ./internal/rpc/... ./internal/txn/... \
	./store/... ./actors/... ./cluster/... ./percolatortest/...
RACE_LONG ?= ./node/... ./internal/simtest/...
RACE_SKIP_NODE  := BackfillIsPaced|BackfillResumes|BacklogIsWorkedOffInOrder|BadObserversHarmNobody|BankWhileALeaderIsCutOff|DeadWorkersWork|ExactCounting|GrowsAndShrinks|HeavyTransactions|IdleTabletsAreNotWalked|LoaderIsSlowedByBacklog|OneDirtyRowAmongMany|OpensBesideLostTablets|ReplicaFallsBehind|UnreadableStore|Workloads
RACE_SKIP_STORE := BatchesAgainstModel|BitRotAtOpen|CommitLimits|CompactionWaitsForFiles|CursorGivesItsRows|FailedOpenLeavesNothing|Kill|LargeBatchCutShort|LocksAgainstModel|ManyChunksGo|MemTableIsLowered|OldVersionsGo|OpenCutShort|OpenRefuses|PowerLossFindsMissingSync|SnapKeepsItsVersions|TornState
RACE_SKIP_LOG   := BitFlips|Model|ReplayAfterKill|ReplayAfterPowerLoss|ReplayFindsMissingSync|ReplayTornState|TornFrame
RACE_SKIP_RPC   := AnswersAreBounded|OperationsAreBounded
RACE_SKIP_ACTOR := CollectionAgainstModel|CrashAnywhere|DestroyCutShort|EvenBytes|FairStart|InstallCutShort|NotifyIndexIsTheStore|Random|Replay|SnapshotBitFlips
RACE_SKIP_OTHER := BadLines|ForgettingMakesRoom|NothingCommandsTheTerminal
RACE_SKIP       ?= ^Test($(RACE_SKIP_NODE)|$(RACE_SKIP_STORE)|$(RACE_SKIP_LOG)|$(RACE_SKIP_RPC)|$(RACE_SKIP_ACTOR)|$(RACE_SKIP_OTHER))$$

.DEFAULT_GOAL := build
.PHONY: help build check test race typescript typescript-kill python python-generate evaluation bench bench-smoke bench-peers bench-cluster bench-hops bench-etcd bench-backup backup-kill bench-start pauses demo generate lint vet fuzz broken corpus webindex-kill webindex-torture supplychain-kill history power soak torture simtest simtest-broken clean grow attack idle race-long random modules memory device release release-check deploy-check upgrade

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/percolator
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/percolator ./cmd/node

check: ## everything that CI runs
	./.ci/run

# Without vet, which is part of lint.
test: ## all tests, without the race detector
	$(GO) test -vet=off -p $(PACKAGES) -timeout $(TIMEOUT) $(FIRST) ./...

race: ## tests of all packages that run goroutines, under the race detector, without the long ones
	$(GO) test -race -p $(PACKAGES) -short -vet=off -timeout $(TIMEOUT) -skip '$(RACE_SKIP)' ./node $(RACE)
	$(GO) test -race -vet=off -timeout $(TIMEOUT) -run '^TestSimulations$$' ./internal/simtest -seeds 1

race-long: ## the same with the long ones, including all tests of whole nodes and simulated clusters
	$(GO) test -race -short -timeout $(TIMEOUT) $(RACE_LONG) $(RACE)

# What compares with PostgreSQL needs the Debian packages postgresql-15 and postgresql-15-pgq3, and is skipped without them.
evaluation: ## repeat the paper's evaluation, in under an hour, into docs/evaluation.md; ONLY=figure8,oracle, ROUNDS=3, SEED; ARGS are passed on
	$(GO) -C bench/evaluation run . -docs ../../docs/evaluation.md -out ../../docs/evaluation $(if $(ONLY),-only $(ONLY)) \
		-rounds $(or $(ROUNDS),3) -seed $(SEED) $(ARGS)

bench-smoke: ## a small part of each measurement of the evaluation, in under two minutes
	$(GO) -C bench/evaluation run . -smoke -out $(CURDIR)/$(BIN)/evaluation $(ARGS)

bench: ## the figures of docs/performance.md, as ratios in one run; ARGS are passed on
	$(GO) run ./bench $(ARGS)

bench-costs: ## overhead of metrics, console and traces on a node, in turns; ARGS are passed on
	$(GO) run ./bench -only costs -callers 64 -rounds 9 -duration 2s $(ARGS)

PEERS := clustering,queues,etcd,permissions,changes

bench-peers: ## beside PostgreSQL, River, PgQ, JetStream, etcd, OpenFGA (Debian: apt-get install postgresql-15 postgresql-15-pgq3); ONLY=queues
	$(GO) -C bench/evaluation run . -only $(or $(ONLY),$(PEERS)) $(ARGS)

bench-etcd: build ## one and 64 callers on three processes, beside three of etcd, with and without TLS, and fail-over; ARGS='-callers 1 -tls off'
	cd bench/evaluation && $(GO) run ./etcd $(ARGS)

bench-cluster: build ## transactions on three processes; ARGS='-builds base,bin' compares builds in turns
	$(GO) run ./bench/cluster $(ARGS)

bench-hops: build ## where one caller's time goes on three processes, hop by hop; ARGS='-builds base,bin -only get'
	$(GO) run ./bench/cluster -hops $(ARGS)

pauses: build ## longest transaction of 32 callers while tablets split, merge and move, and while a disk fills; fails above 2 s; ARGS='-sync-delay 5ms'; needs root
	$(GO) run ./bench/pauses $(ARGS)

bench-backup: build ## slowdown of a load during a backup of SIZE=1024 MiB, in turns; ARGS are passed on
	$(GO) run ./bench/backup $(if $(SIZE),-size $(SIZE)) $(ARGS)

bench-start: ## startup time with ROWS="20000 200000 2000000" rows of 500 bytes, and its growth
	$(if $(ROWS),ROWS='$(ROWS)') $(GO) test -run '^$$' -bench '^BenchmarkStart$$' -benchtime 10x ./node $(ARGS)

demo: build ## one node with the web index loaded, and a summary; with ARGS=--exit it exits after that
	$(GO) -C examples/webindex/webindex build -trimpath -ldflags '$(LDFLAGS)' -o ../../../$(BIN)/webindex .
	$(BIN)/webindex $(ARGS)

generate: ## Go code from the .proto files; references of metrics, commands and errors from the code
	$(GO) tool -modfile=tools/go.mod buf generate
	$(GO) tool -modfile=tools/go.mod buf generate --template buf.gen.gateway.yaml
	UPDATE=1 $(GO) test -count=1 -run '^TestReferenceOf' ./node/telemetry ./internal/cli

# Modules of their own, so that the main module does not have their dependencies.
MODULES := bench/evaluation examples/webindex/webindex recipes/sinks/feedkafka recipes/sinks/feednats recipes/sinks/feedpostgres test/s3 tools

modules: ## check that the other modules are tidy, vet and test them
	@set -e; for m in $(MODULES); do echo "== $$m"; $(GO) -C $$m mod tidy -diff; $(GO) -C $$m vet ./...; $(GO) -C $$m test ./...; done

# Needs Node.js 20 or later with npm; the tests kill nodes of bin/percolator, and open a page in Chromium.
typescript: build ## generate, compile and test the TypeScript client
	cd clients/typescript && npm ci --silent --ignore-scripts && node node_modules/esbuild/install.js && \
		$(GO) tool -modfile=../../tools/go.mod buf generate ../.. --template buf.gen.yaml --path ../../api/gateway && \
		npm run build --silent && $(GO) build -o ../../$(BIN)/ ../../examples/pipeline && \
		PERCOLATOR=../../$(BIN)/percolator npm test --silent
	TYPESCRIPT=1 $(GO) test -count=1 -run '^TestTypeScriptWalks$$' ./test/walks
	git diff --exit-code -- clients/typescript/src/gen

# Not part of CI: ROUNDS kills of workers and nodes, about 10 s each. `make typescript` first.
typescript-kill: ROUNDS = 20
typescript-kill: build ## count changes by TypeScript workers while they and nodes are killed (ROUNDS=20)
	cd clients/typescript && npx tsc --project tsconfig.test.json && \
		PERCOLATOR=../../$(BIN)/percolator ROUNDS=$(ROUNDS) node --test --test-name-pattern='counts once' dist-test/test/observers.test.js

# Needs Python with the package protobuf (Debian: python3-protobuf). The tests kill nodes of bin/percolator.
python: PYTHON = /usr/bin/python3
python: build ## test the Python client
	cd clients/python && PERCOLATOR=../../$(BIN)/percolator $(PYTHON) -W error -m unittest

# Needs protoc (Debian: protobuf-compiler). The client requires the protobuf package of protoc's release, or a later one.
python-generate: ## generate the messages of the Python client
	protoc -I api --python_out=clients/python/percolator_client --pyi_out=clients/python/percolator_client api/gateway/v1/gateway.proto

release: ## dist/: static binaries for PLATFORMS, bills of materials, checksums
	GO='$(GO)' VERSION='$(RELEASE)' ./scripts/release

release-check: ## build the same sources in two directories and compare the static binaries
	GO='$(GO)' VERSION='$(RELEASE)' ./scripts/release --check

# Not part of check: it compiles kustomize, Helm, Kubernetes' types and BuildKit for files that seldom change.
deploy-check: ## parse the files of deploy/ with the libraries of kustomize, Helm, Kubernetes and BuildKit
	cd deploy/check && $(GO) test -count=1 -v .

vet:
	$(GO) vet ./...

# The linters include go vet, but skip generated code, which is vetted first. With the default GOGC golangci-lint spends half of
# its time on garbage collection; GOMEMLIMIT bounds the additional memory.
lint: $(LINT) ## the linters of .golangci.yml, and go vet
	$(GO) vet ./api/... ./internal/wire
	GOGC=400 GOMEMLIMIT=4GiB $(LINT) run ./...
	cd bench/evaluation && GOGC=400 GOMEMLIMIT=4GiB ../../$(LINT) run ./...

# axe-core checks the accessibility of pages in the browser tests; without it they skip that.
AXE_VERSION := 4.11.0
$(BIN)/axe.min.js:
	mkdir -p $(BIN) && cd $(BIN) && npm pack --silent axe-core@$(AXE_VERSION) && \
		tar -xzOf axe-core-$(AXE_VERSION).tgz package/axe.min.js >axe.min.js && rm axe-core-$(AXE_VERSION).tgz

$(LINT):
	@mkdir -p $(BIN)
	GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $(BIN)/golangci-lint $@

random: ## random tests of single packages, with more seeds than `make test` uses
	HISTORIES=100000 $(GO) test -count=1 -timeout $(TIMEOUT) -run '^TestHistories$$' ./internal/mvcc
	$(GO) test -count=1 -timeout $(TIMEOUT) -run '^TestRandomWebs$$' ./examples/webindex/index -webs 3000
	PLACEMENTS=300 $(GO) test -count=1 -timeout $(TIMEOUT) -run '^TestEvenBytes$$' ./actors/placement

fuzz: ## every fuzz target for FUZZTIME
	GO='$(GO)' ./scripts/fuzz $(FUZZTIME)

broken: ## check that each deliberately broken build fails its named test
	$(GO) run ./internal/broken/catch $(ARGS)

corpus: ## a larger corpus for the web index, from Debian's documentation packages, in corpus/
	./scripts/corpus

webindex-kill: ## kill -9 during the web index's load, restart, verify; SEEDS times
	KILLED=$(SEEDS) $(GO) -C examples/webindex/webindex test -count=1 -v -timeout 0 -run '^TestKilled$$' .

# Not part of test: only with many packages does each kill interrupt many runs.
supplychain-kill: ## the supply chain on three nodes; kills each node during a cascade, and the import, and compares with a batch computation; ROUNDS=10, SEED, PACKAGES=5000
	$(GO) test -count=1 -v -timeout $(DURATION) -run '^TestKilledProcesses$$' ./examples/supplychain -rounds $(or $(ROUNDS),10) -seed $(SEED) -packages $(or $(PACKAGES),5000)

soak: ## one node: load, edit, split, kill, pause and verify for DURATION, randomly by SEED; ARGS are passed on
	$(GO) run ./test/torture -faults soak -duration $(DURATION) -seed $(SEED) $(ARGS)

torture: ## all workloads on a cluster of processes, under each fault in turn; LEASES=off: without leases; LEASES=both: first with, then without; needs root
	$(GO) run ./test/torture -duration $(DURATION) -seed $(SEED) $(if $(LEASES),-leases $(LEASES)) $(ARGS)

backup-kill: build ## backups and restores of SIZE=1024 MiB under load, with the commands and the nodes killed, compared row by row
	$(GO) run ./test/backup -seed $(SEED) $(if $(SIZE),-size $(SIZE)) $(if $(filter command,$(origin DURATION)),-duration $(DURATION)) $(ARGS)

simtest: ## SEEDS simulated clusters under faults, from SEED on, in virtual time; NODES=5: five nodes each
	$(GO) test ./internal/simtest -run '^TestSimulations$$' -timeout 0 -seeds $(SEEDS) -seed $(SEED) -nodes $(or $(NODES),0) $(ARGS)

simtest-broken: ## check that a simulation catches each broken build that it can, within ten minutes each; SOUND=12: the control, 12 seeds of the intact build
	SEED=$(SEED) ./scripts/simtest-broken $(ARGS)

webindex-torture: ## load the web index on three nodes, kill them and add two during the load, verify; needs root
	$(GO) run ./test/torture -faults webindex -duration 60s -seed $(SEED) $(ARGS)

grow: ## grow a cluster from one process to three and five, and shrink it to three, under writes; of four, lose one, replace it, and let it return
	GROW=1 $(GO) test -count=1 -timeout $(TIMEOUT) -v ./test/grow

upgrade: ## replace three nodes of an earlier build (FROM=revision; default: this source, restricted to version 2) one by one, back and forth for DURATION, under load and kill -9, randomly by SEED; KNOWS=2-2 restricts the earlier build to version 2
	FROM='$(FROM)' KNOWS='$(KNOWS)' DURATION=$(DURATION) SEED=$(SEED) $(GO) test -count=1 -timeout 0 -v ./test/upgrade

attack: ## huge messages, idle and half-open connections, open transactions, clients that do not read or send half messages; PROFILES=folder: heap profiles of a failed run
	ATTACK=1 $(GO) test -count=1 -timeout $(TIMEOUT) -v ./test/attack

idle: ## processor time of TABLETS=1000 idle tablets on NODES=3 processes, over DURATION=60s; PROFILES=folder: profiles
	IDLE=1 $(GO) test -count=1 -timeout 1h -run '^TestIdle$$' -v ./test/idle $(ARGS)

memory: ## 32 callers write 10 KB values to a node in a cgroup of MEMORY=1073741824 bytes ("none": no limit), for DURATION=60s; needs root
	MEMORY=$(or $(MEMORY),1073741824) $(GO) test -count=1 -timeout 1h -run '^TestLimit$$' -v ./test/memory $(ARGS)

device: build ## bytes written to the block device, per transaction and for the web index; ARGS='-build base,bin' compares builds; needs root
	$(GO) -C examples/webindex/webindex build -trimpath -ldflags '$(LDFLAGS)' -o ../../../$(BIN)/webindex .
	$(GO) -C bench/evaluation build -o $(CURDIR)/$(BIN)/device ./device/command
	$(BIN)/device -build $(BIN) $(ARGS)

history: ## overwrite 1 MiB COUNT=10000 times with a history of ten seconds, and measure the size of the directory
	HISTORY=$(or $(COUNT),10000) $(GO) test -count=1 -timeout 2h -run '^TestHistorySpace$$' -v ./actors/tablet

power: ## ROUNDS=200 kills and as many power losses of a store on a loop-mounted ext4, and some of its log and of a node; needs root
	./scripts/power

clean: ## remove bin/
	rm -rf $(BIN)

# Run "make help" for the targets. CI runs .ci/run. Targets that install Debian packages need root.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

MODULES = $(dir $(shell git ls-files '*go.mod'))
SERVER := cmd/kube-apiserver
BIN := $(CURDIR)/bin
CACHE := $(CURDIR)/.cache
KUBERNETES := v1.37.1
# Without debug information. For a debugger: make build STRIP=
STRIP ?= -s -w
SERVER_LDFLAGS := $(STRIP) -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)
# Without paths of this folder in the binaries, clones share the build cache.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
# Without C, a build gives the same bytes on every machine. Only the race detector and vale need C.
export CGO_ENABLED := 0

# To change on the command line, as are DEMO_EXIT=1 and SUITES: a list with commas; all suites run without it.
ANSWER_BYTES ?= 1073741824
CORPUS ?= 12
DEMO_DIR ?= $(CACHE)/demo
# The commit before the first release.
FROM ?= 3b0c3a1f
FUZZTIME ?= 60s
MODEL_DECISIONS ?= 1000000
PACKAGES ?= $(shell nproc)
# How many tests with servers run at the same time.
PARALLEL ?= 6

# Tests run in a scratch folder, without debug information, which makes linking faster. The servers that
# they start have no race detector; see test-race.
SCRATCH := $(CURDIR)/hack/scratch
GO_TEST := $(SCRATCH) go test -vet=off -ldflags "-s -w"
RACE_TEST := CGO_ENABLED=1 $(SCRATCH) go test -race
SERVER_TEST := KUBETENANT_BIN=$(BIN) $(GO_TEST) -timeout 40m -parallel $(PARALLEL)

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' Makefile

BINARIES := $(addprefix $(BIN)/,kubectl-tenant kubectl_complete-tenant kubetenant-webhook kubetenant-gateway \
  kube-apiserver kubetenant-local kubectl vanilla-kube-apiserver)
SOURCES := $(shell find . \( -name '.?*' -o -path ./bin -o -path ./docs -o -path ./examples -o -path ./hack \
  -o -name testdata \) -prune -o -type f ! -name '*_test.go' ! -name '*.md' -print | sort)
# Its name depends on the list of sources, so that the deletion of a source is a change.
BUILT := $(CACHE)/built-$(firstword $(shell echo $(SOURCES) $(STRIP) | md5sum))

build: $(BINARIES) $(BUILT) ## the commands, into bin/; silent if nothing has changed
	@:
$(BINARIES) $(BUILT) &: $(SOURCES) hack/build.sh
	@hack/build.sh $(BIN) "$(STRIP)" "$(SERVER_LDFLAGS)"
	@mkdir -p $(CACHE) && rm -f $(CACHE)/built-* && touch $(BINARIES) $(BUILT)

demo: build ## a control plane with two tenants, and a walk through requests
	@go run ./hack/demo --bin $(BIN) --dir $(DEMO_DIR) $(if $(DEMO_EXIT),--exit)
demo-keystone: build keystone ## the same control plane with callers of a real Keystone
	@go run ./hack/demo --bin $(BIN) --dir $(DEMO_DIR) --keystone
GENERATORS := $(addprefix $(BIN)/,controller-gen client-gen lister-gen informer-gen crd-ref-docs config-schema)
generate: $(GENERATORS) ## code, definitions, the schema and reference pages from the Go types and comments
	@hack/generate.sh $(BIN)
check: $(BIN)/golangci-lint $(BIN)/vale $(BIN)/actionlint $(BIN)/addlicense $(GENERATORS) ## formatting, vet, linters, English, workflows, generated files
	@hack/check.sh $(BIN) $(MODULES)
ci: ## all that CI runs
	@.ci/run
# Values from outside reach the scripts in the environment, so that make and the shell do not expand them.
sign-offs: ## whether all commits after BASE (or else after main) are signed off
	@hack/sign-offs.sh "$${BASE:-main}"
vulnerabilities: $(BIN)/govulncheck ## known vulnerabilities in code that the modules call
	@hack/vulnerabilities.sh $(BIN) $(MODULES)
licenses: $(BIN)/addlicense ## write the license header into source files that have none
	@hack/licenses.sh $(BIN)
registry-login: $(BIN)/cosign ## log in to REGISTRY as REGISTRY_USER with REGISTRY_PASSWORD
	@hack/registry-login.sh $(BIN) "$$REGISTRY"
publish-release: ## create the release of the tag VERSION on GitHub from dist/
	@hack/publish-release.sh "$${DIR:-dist}" "$$VERSION"

test: build ## all tests, a real kube-apiserver included; the library's with the race detector
	@$(MAKE) --no-print-directory -j2 test-library test-servers
test-library: build $(BIN)/vale ## the tests without a real kube-apiserver, with the race detector
	$(RACE_TEST) -timeout 20m -vet=off -ldflags "-s -w" -parallel 8 -p $(PACKAGES) -skip '^(TestLargeLists|TestMemory)$$' ./...
	$(GO_TEST) -run '^TestModel$$' ./authz -model.decisions $(MODEL_DECISIONS)
	$(GO_TEST) -run '^TestLarge(Answers|Lists)$$' ./internal/gateway -answer.bytes $(ANSWER_BYTES)
	$(GO_TEST) -run '^TestMemory$$' ./internal/usage
	$(SCRATCH) $(BIN)/kubectl-tenant test testdata/scenarios
	cd examples && $(GO_TEST) ./... && cd controller && $(GO_TEST) ./...
test-servers: build ## the tests with a kube-apiserver that has tenants compiled in
	cd $(SERVER) && $(SERVER_TEST) -skip '^(TestWebhook|TestClients|TestGateway|TestInstall)' ./...

test-e2e: build e2e-tools ## the webhook service behind an unmodified kube-apiserver
	cd $(SERVER) && $(SERVER_TEST) -run '^TestWebhook' ./test/e2e
test-gateway: build $(BIN)/helm ## the gateway in front of an unmodified kube-apiserver
	cd $(SERVER) && $(SERVER_TEST) -run '^TestGateway' ./test/e2e
# SNAPSHOT_DIR is the folder in which make release-check builds a release.
SNAPSHOT_DIR ?= $(CACHE)/release-check/dist
test-install: build $(BIN)/helm ## docs/install.md and docs/gateway.md with a release; run make release-check first
	@command -v ip >/dev/null || hack/install-apt.sh iproute2
	cd $(SERVER) && KUBETENANT_RELEASE=$(abspath $(SNAPSHOT_DIR)) $(SERVER_TEST) -parallel 1 -run '^TestInstall' ./test/e2e
test-upgrade: build ## upgrades from the commit FROM, and rollbacks, under traffic
	@hack/upgrade.sh $(FROM) $(CACHE)/upgrade "$(STRIP)" "$(SERVER_LDFLAGS)"
	cd $(SERVER) && KUBETENANT_UPGRADE_FROM=$(CACHE)/upgrade/bin $(SERVER_TEST) -timeout 90m -parallel 1 -count=1 ./test/upgrade
test-gitops: build gitops-tools ## Flux and Argo CD as tools of a platform team
	cd $(SERVER) && KUBETENANT_GITOPS=$(CACHE)/gitops $(SERVER_TEST) -run '^TestGitOps' ./test/e2e
test-clients: build $(BIN)/helm $(CACHE)/javascript/package.json ## kubectl, Helm and other clients as a tenant
	cd $(SERVER) && KUBETENANT_JAVASCRIPT=$(CACHE)/javascript $(SERVER_TEST) -run '^TestClients' ./test/e2e

UPSTREAM = cd $(SERVER) && $(SCRATCH) go run ./test/conformance --bin $(BIN) --dir $(CACHE)/upstream \
  --differences test/conformance/differences.yaml
SUITES_IN_CI := pkg/builder,pkg/client,pkg/controller/controllerutil,pkg/handler
test-upstream: build ## test suites of other projects, compared with upstream's server (docs/conformance.md)
	$(UPSTREAM) --only "$(SUITES)" --page $(CURDIR)/docs/conformance.md
test-upstream-short: build ## the suites that CI runs
	$(UPSTREAM) --only "$(SUITES_IN_CI)"

test-idp: build keystone $(CACHE)/idp/package.json ## a real Keystone and a real OpenID provider
	KUBETENANT_IDP=$(CACHE)/idp $(RACE_TEST) -count=1 -timeout 10m ./test/idp
	cd $(SERVER) && KUBETENANT_IDP=$(CACHE)/idp $(SERVER_TEST) -count=1 -run '^TestKeystone' ./test/e2e
test-browser: $(CACHE)/browser/package.json ## the access map and the diagrams of the docs in a real browser
	@command -v chromium >/dev/null || hack/install-apt.sh chromium
	KUBETENANT_BROWSER=$(CACHE)/browser $(RACE_TEST) -count=1 -timeout 10m ./internal/cli/accessmap \
	  ./test/browser
RACE := $(BIN)/race
test-race: build ## the scenarios on servers that have the race detector
	@echo 'building the servers with the race detector (about 15 minutes the first time) ...'
	@mkdir -p $(RACE) && cp -f $(BIN)/vanilla-kube-apiserver $(BIN)/kubectl $(BIN)/kubectl-tenant $(RACE)/
	@CGO_ENABLED=1 go build -race -o $(RACE)/ ./cmd/kubetenant-webhook
	@cd $(SERVER) && CGO_ENABLED=1 go build -race -ldflags "$(SERVER_LDFLAGS)" -o $(RACE)/ . ./kubetenant-local
	cd $(SERVER) && $(RACE_TEST) -timeout 30m ./issuer ./test/differential
	cd $(SERVER) && GORACE=halt_on_error=1 KUBETENANT_BIN=$(RACE) $(SCRATCH) go test -timeout 40m -parallel 2 \
	  -run '^(TestScenarios|TestWebhookScenarios)$$' ./test/e2e

bench: build ## benchmarks next to upstream's code
	go test -run '^$$' -bench . -benchmem ./authn ./authn/x509 ./authn/tokenfile ./authn/serviceaccount ./authn/oidc \
	  ./authn/keystone ./authz | awk -f hack/ratios.awk
	go test -run '^$$' -bench . -benchmem ./authz/accessgrant
	cd $(SERVER) && go test -run '^$$' -bench . -benchtime 0.5s ./test/differential
	go run ./test/bench --bin $(BIN)
bench-webhook: build ## the webhook service under load, next to an empty TLS server
	@command -v h2load >/dev/null || hack/install-apt.sh nghttp2-client
	go build -o $(BIN)/benchwebhook ./test/benchwebhook && $(BIN)/benchwebhook --bin $(BIN)
bench-gateway: build ## the gateway under load, next to httputil.ReverseProxy and a server without a gateway
	cd $(SERVER) && go build -o $(BIN)/benchgateway ./test/benchgateway && $(BIN)/benchgateway --bin $(BIN)
bench-fairness: ## a quiet tenant next to a noisy one, in upstream's queues and in the queues of tenants
	cd $(SERVER) && go build -o $(BIN)/benchfairness ./test/benchfairness && $(BIN)/benchfairness
	go test -run "^$$" -bench Fairness -benchtime 1x ./internal/webhook/service ./internal/gateway
bench-cli: build ## kubectl tenant on a large cluster, next to kubectl
	go test -run '^$$' -bench . -cpu 1,2 ./internal/simulate/replay
	go run ./test/benchcli --bin $(BIN)
bench-tenants: build ## a server with 10,000 tenants and 30,000 namespaces
	go run ./test/benchtenants --bin $(BIN)

# docs/releases.md describes these targets and their variables.
RELEASE = KUBERNETES=$(KUBERNETES) STRIP="$(STRIP)" hack/release.sh
RELEASE_TOOLS := $(addprefix $(BIN)/,cosign release syft)
release: $(RELEASE_TOOLS) ## the files of a release into dist/: VERSION=v0.1.0 KEY=cosign.key, or SNAPSHOT=1
	@$(RELEASE) build
verify-release: $(BIN)/cosign $(BIN)/release ## verify the files in DIR (dist): PUBLIC=cosign.pub, or UNSIGNED=1
	@$(RELEASE) verify
push-release: $(BIN)/cosign $(BIN)/release ## verify the files in DIR, and push images and charts to REGISTRY
	@$(RELEASE) push
release-check: $(RELEASE_TOOLS) ## a signed snapshot for linux/amd64, verified, and attacks on it
	@$(RELEASE) check
release-reproduce: $(RELEASE_TOOLS) ## two clones make the same files (30 minutes the first time)
	@$(RELEASE) reproduce

fuzz: ## each fuzz target for FUZZTIME, and its coverage
	@hack/fuzz.sh $(FUZZTIME)
fuzz-corpora: ## copy CORPUS inputs that each target has found into testdata/fuzz
	@hack/fuzz-corpora.sh $(CORPUS)
golden: ## write the expected output of commands and servers, and pages of docs/reference, again
	UPDATE_GOLDEN=1 go test ./cmd/kubectl-tenant/... ./internal/manifests/webhook ./test/reference
	cd $(SERVER) && UPDATE_GOLDEN=1 go test -run Bootstrap ./test/differential
clean: ## remove what make has built; control planes in .cache stay
	rm -rf $(BIN) $(addprefix $(CACHE)/,browser gitops idp javascript upstream) $(CACHE)/built-*

# What the targets above install and build. .ci/run builds the tools before it starts tests in parallel.
e2e-tools: $(BIN)/helm $(BIN)/kubeconform $(BIN)/promtool
gitops-tools: $(CACHE)/gitops/built
keystone: ; @hack/install-apt.sh python3-keystone uwsgi-core uwsgi-plugin-python3
$(GENERATORS) $(addprefix $(BIN)/,golangci-lint helm kubeconform vale): hack/tools/go.mod $(wildcard hack/tools/*/*.go)
	@echo 'building $(@F) (up to 3 minutes the first time) ...'
	@cd hack/tools && go build -o $@ "$$(go list tool | grep '/$(@F)$$')" && touch $@
$(BIN)/vale: export CGO_ENABLED := 1
release-tools: $(addprefix $(BIN)/,actionlint addlicense cosign govulncheck release syft)
$(BIN)/release: $(filter-out %_test.go,$(wildcard hack/release/*.go)) hack/release/go.mod
	@cd hack/release && go build -o $@ .
$(addprefix $(BIN)/,actionlint addlicense cosign govulncheck syft): hack/release/go.mod
	@echo 'building $(@F) (up to 5 minutes the first time) ...'
	@cd hack/release && go build -o $@ "$$(go list tool | grep '/$(@F)$$')" && touch $@
$(BIN)/promtool:
	@hack/install-promtool.sh $@
$(CACHE)/gitops/built: hack/build-gitops.sh $(wildcard hack/gitops/*/*)
	@echo "building kustomize-controller and an agent of Argo CD's engine (about 4 minutes the first time) ..."
	@hack/build-gitops.sh $(@D) && touch $@
$(CACHE)/idp/package.json: test/idp/testdata/package.json
$(CACHE)/browser/package.json: test/browser/package.json
$(CACHE)/javascript/package.json: $(SERVER)/test/e2e/testdata/clients/package.json
$(addprefix $(CACHE)/,$(addsuffix /package.json,idp browser javascript)):
	@hack/install-npm.sh $< $(@D)

.PHONY: $(shell awk -F: '/^[a-z0-9-]+:/ { print $$1 }' Makefile)

# CI runs check, test, test-e2e, test-gateway, test-clients, test-gitops, test-upstream-short, test-idp, test-browser and demo.
#
#   make demo    build everything, start a control plane with two tenants, walk through requests
#   make test    all tests, a real kube-apiserver included; the library's with the race detector
#   make test-e2e       tests of the webhook service behind an unmodified kube-apiserver
#   make test-gateway   tests of the gateway before an unmodified kube-apiserver
#   make test-upstream  suites that nobody here wrote, beside upstream's server (docs/conformance.md)
#   make test-race      the corpus on servers that are built with the race detector
#   make test-clients   kubectl, Helm and other clients as a tenant, beside upstream's server; installs JavaScript's
#   make test-idp       tests against a real Keystone and a real OpenID provider, which it installs
#   make test-browser   tests of the access map and of the diagrams in a real browser, which it installs
#   make demo-keystone  the same control plane with callers of a real Keystone
#   make check   formatting, vet, linters, tidy modules
#   make bench   benchmarks beside upstream's own code
#   make bench-webhook  the webhook service under load, beside an empty TLS server
#   make bench-gateway  the gateway under load, beside httputil.ReverseProxy and before a bare kube-apiserver
#   make bench-cli      kubectl tenant on a large cluster, beside kubectl
#   make bench-tenants  10,000 tenants with 30,000 namespaces on a server
#   make fuzz    every fuzz target for FUZZTIME, and what of its package it covers; make fuzz-corpora keeps some of what was found
#   make build   the commands, into bin/
#   make golden  what commands print, written anew
#   make help    this

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

KUBERNETES := v1.37.1
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 60s
# Without the folder's path in it, what one clone has built serves the next.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
BIN := $(CURDIR)/bin
SERVER := cmd/kube-apiserver
LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)
DEMO_DIR ?= $(CURDIR)/.cache/demo
DEMO_EXIT ?=

HELM := helm.sh/helm/v4/cmd/helm@v4.3.1
KUBECONFORM := github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0

# install makes sure of packages of the distribution (Debian): $(call install,PACKAGES,COMMAND THAT FAILS WITHOUT)
install = @$(2) >/dev/null 2>&1 || { \
  command -v apt-get >/dev/null || { echo 'missing: $(1): install it, there is no apt-get here'; exit 1; }; \
  echo 'installing $(1) ...'; \
  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $(1) >/dev/null; }
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

# What the commands are built from, and the list of it, which is newer when a file has gone.
SOURCES := $(shell find . \( -path ./bin -o -path ./.cache -o -path ./.git -o -path ./.ci -o -name testdata \) -prune -o \
  -type f ! -name '*_test.go' ! -name '*.md' ! -path './docs/cli/*' -print | sort)
COMMANDS := $(addprefix $(BIN)/,kube-apiserver kubetenant-local kubectl vanilla-kube-apiserver kubectl-tenant kubetenant-webhook kubetenant-gateway)

.PHONY: build
build: $(BIN)/.built
	@:

$(BIN)/.built: $(SOURCES) .cache/sources $(if $(filter-out $(wildcard $(COMMANDS)),$(COMMANDS)),FORCE)
	@mkdir -p $(BIN)
	@go build -ldflags "-s -w" -o $(BIN)/ ./cmd/kubectl-tenant ./cmd/kubetenant-webhook ./cmd/kubetenant-gateway
	@install -m 755 cmd/kubectl-tenant/kubectl_complete-tenant $(BIN)/
	@cd $(SERVER) && go list -deps . ./kubetenant-local ./kubectl | wc -l | xargs printf 'building kube-apiserver and kubectl (%s packages; about 5 minutes and 3 GB of memory the first time) ...\n'
	@cd $(SERVER) && go build -v -ldflags "$(LDFLAGS)" -o $(BIN)/ . ./kubetenant-local ./kubectl 2>&1 | awk -f $(CURDIR)/hack/progress.awk
	@cd $(SERVER) && go build -ldflags "$(LDFLAGS)" -o $(BIN)/vanilla-kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
	@touch $@

.cache/sources: FORCE
	@mkdir -p .cache
	@printf '%s\n' $(SOURCES) | cmp -s - $@ || printf '%s\n' $(SOURCES) >$@

.PHONY: FORCE

.PHONY: demo
demo: build
	@go run ./hack/demo --bin $(BIN) --dir $(DEMO_DIR) $(if $(DEMO_EXIT),--exit)

# Tests run in a scratch folder. Servers are tested without the race detector, which would look at their clients
# only: make test-race builds it into them.
SCRATCH := $(CURDIR)/hack/scratch
TEST_SERVERS := KUBETENANT_BIN=$(BIN) $(SCRATCH) go test -vet=off -timeout 20m -parallel 6

# Decisions of the boundary that are compared with its model, beside those with the race detector on.
MODEL_DECISIONS ?= 1000000
# Packages whose tests run at the same time: some wait more than they work.
PACKAGES ?= $(shell echo $$(($$(nproc) + 1)))
# What a cluster sends that means no good: with the race detector on it would take minutes.
ANSWER_BYTES ?= 1073741824

.PHONY: help
help:
	@sed -n '/^#   make /s/^#   //p' Makefile

.PHONY: test
test: build
	$(SCRATCH) go test -vet=off -race -p $(PACKAGES) ./...
	$(SCRATCH) go test -vet=off -run '^TestModel$$' ./authz -model.decisions $(MODEL_DECISIONS)
	$(SCRATCH) go test -vet=off -run '^TestLargeAnswers$$' ./internal/gateway -answer.bytes $(ANSWER_BYTES)
	$(SCRATCH) $(BIN)/kubectl-tenant test testdata/scenarios
	cd examples && $(SCRATCH) go test -vet=off ./...
	cd $(SERVER) && $(TEST_SERVERS) -skip '^(TestWebhook|TestClients|TestGateway)' ./...

.PHONY: test-e2e e2e-tools
e2e-tools: $(BIN)/helm $(BIN)/kubeconform $(BIN)/promtool
test-e2e: build e2e-tools
	cd $(SERVER) && $(TEST_SERVERS) -run '^TestWebhook' ./test/e2e

# Suites that nobody here wrote: all, or those named in SUITES.
SUITES ?=
SUITES_IN_CI := pkg/builder,pkg/client,pkg/controller/controllerutil,pkg/handler,pkg/internal/recorder
UPSTREAM = cd $(SERVER) && $(SCRATCH) go run ./test/conformance --bin $(BIN) --dir $(CURDIR)/.cache/upstream --differences $(CURDIR)/cmd/kube-apiserver/test/conformance/differences.yaml

.PHONY: test-upstream test-upstream-short
test-upstream: build
	$(UPSTREAM) --only "$(SUITES)" --page $(CURDIR)/docs/conformance.md

test-upstream-short: build
	$(UPSTREAM) --only "$(SUITES_IN_CI)"

# GitOps tools as they are: Flux' kustomize-controller with its definitions, and the agent of Argo CD's engine, which listens on the
# loopback address alone here.
GITOPS := $(CURDIR)/.cache/gitops
KUSTOMIZE_CONTROLLER := github.com/fluxcd/kustomize-controller
SOURCE_CONTROLLER := github.com/fluxcd/source-controller@v1.7.2
GITOPS_ENGINE := github.com/argoproj/gitops-engine@v0.7.3
copied = dir=$$(go mod download -json $(1) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p') && [ -n "$$dir" ] && mkdir -p $(2) && cp -r $$dir/. $(2) && chmod -R u+w $(2)

$(GITOPS)/built: Makefile
	@echo "building Flux' kustomize-controller and Argo CD's agent (about 4 minutes the first time) ..."
	@rm -rf $(GITOPS) && mkdir -p $(GITOPS)/src
	@cd $(GITOPS)/src && $(call copied,$(KUSTOMIZE_CONTROLLER)@v1.7.3,kustomize) && $(call copied,$(KUSTOMIZE_CONTROLLER)/api@v1.7.3,kustomize/api) && \
	  cp -r kustomize/config/crd/bases $(GITOPS)/flux-kustomize && cd kustomize && go build -o $(GITOPS)/kustomize-controller .
	@cd $(GITOPS)/src && $(call copied,$(SOURCE_CONTROLLER),source) && cp -r source/config/crd/bases $(GITOPS)/flux-source
	@cd $(GITOPS)/src && $(call copied,$(GITOPS_ENGINE),engine) && cd engine && sed -i 's/"0.0.0.0:%d"/"127.0.0.1:%d"/' agent/main.go && \
	  go build -o $(GITOPS)/argo-agent ./agent
	@rm -rf $(GITOPS)/src && touch $@

.PHONY: test-gateway
test-gateway: build $(BIN)/helm
	cd $(SERVER) && $(TEST_SERVERS) -run '^TestGateway' ./test/e2e

.PHONY: test-gitops gitops-tools
gitops-tools: $(GITOPS)/built
test-gitops: build gitops-tools
	cd $(SERVER) && KUBETENANT_GITOPS=$(GITOPS) $(TEST_SERVERS) -run '^TestGitOps' ./test/e2e

RACE := $(BIN)/race

.PHONY: test-race
test-race: build
	@echo 'building kube-apiserver and kubetenant-webhook with the race detector (about 15 minutes the first time) ...'
	@mkdir -p $(RACE) && cp -f $(BIN)/vanilla-kube-apiserver $(BIN)/kubectl $(BIN)/kubectl-tenant $(RACE)/
	@go build -race -o $(RACE)/ ./cmd/kubetenant-webhook
	@cd $(SERVER) && go build -race -ldflags "$(LDFLAGS)" -o $(RACE)/ . ./kubetenant-local
	cd $(SERVER) && $(SCRATCH) go test -race -timeout 30m ./issuer ./test/differential
	cd $(SERVER) && GORACE=halt_on_error=1 KUBETENANT_BIN=$(RACE) $(SCRATCH) go test -timeout 40m -parallel 2 -run '^(TestScenarios|TestWebhookScenarios)$$' ./test/e2e

$(BIN)/helm $(BIN)/kubeconform:
	@echo 'building $(@F) ...'
	@GOBIN=$(BIN) go install $(if $(filter helm,$(@F)),$(HELM),$(KUBECONFORM))

# promtool of the distribution (Debian), without the server that its package would start.
$(BIN)/promtool:
	@echo 'installing promtool ...'
	@rm -rf .cache/prometheus && mkdir -p $(BIN) .cache/prometheus && cd .cache/prometheus && \
	  { apt-get download -qq prometheus 2>/dev/null || { $(SUDO) apt-get update -qq && apt-get download -qq prometheus; }; } && \
	  dpkg -x prometheus_*.deb . && install -m 755 usr/bin/promtool $@
	@rm -rf .cache/prometheus

# The identity providers: Keystone of the distribution (Debian), an OpenID provider of npm.
IDP := $(CURDIR)/.cache/idp
KEYSTONE := python3-keystone uwsgi-core uwsgi-plugin-python3

.PHONY: keystone
keystone:
	$(call install,$(KEYSTONE),dpkg -s $(KEYSTONE))

$(IDP)/package.json: test/idp/testdata/package.json
	$(call install,npm,command -v npm)
	@mkdir -p $(IDP) && cp $< $@
	@cd $(IDP) && npm install --no-audit --no-fund --no-package-lock --loglevel=error || { rm -f package.json; exit 1; }

.PHONY: test-idp
test-idp: keystone $(IDP)/package.json
	KUBETENANT_IDP=$(IDP) $(SCRATCH) go test -race -count=1 -timeout 10m ./test/idp

# The browser: Chromium of the distribution (Debian), what drives it and looks at accessibility of npm.
BROWSER_TOOLS := $(CURDIR)/.cache/browser

$(BROWSER_TOOLS)/package.json: test/browser/package.json
	$(call install,npm,command -v npm)
	@mkdir -p $(BROWSER_TOOLS) && cp $< $@
	@cd $(BROWSER_TOOLS) && npm install --no-audit --no-fund --no-package-lock --loglevel=error || { rm -f package.json; exit 1; }

.PHONY: test-browser
test-browser: $(BROWSER_TOOLS)/package.json
	$(call install,chromium,command -v chromium)
	KUBETENANT_BROWSER=$(BROWSER_TOOLS) $(SCRATCH) go test -race -count=1 -timeout 10m ./internal/cli/accessmap ./test/browser

# Clients as a tenant's admin, beside upstream's server: JavaScript's is npm's.
JAVASCRIPT := $(CURDIR)/.cache/javascript

$(JAVASCRIPT)/package.json: cmd/kube-apiserver/test/e2e/testdata/clients/package.json
	$(call install,npm,command -v npm)
	@mkdir -p $(JAVASCRIPT) && cp $< $@
	@cd $(JAVASCRIPT) && npm install --no-audit --no-fund --no-package-lock --loglevel=error || { rm -f package.json; exit 1; }

.PHONY: test-clients
test-clients: build $(BIN)/helm $(JAVASCRIPT)/package.json
	cd $(SERVER) && KUBETENANT_JAVASCRIPT=$(JAVASCRIPT) $(TEST_SERVERS) -run '^TestClients' ./test/e2e

.PHONY: demo-keystone
demo-keystone: build keystone
	@go run ./hack/demo --bin $(BIN) --dir $(DEMO_DIR) --keystone

.PHONY: check
check: $(BIN)/golangci-lint
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'not gofmt-ed'; exit 1; }
	go mod tidy -diff
	cd $(SERVER) && go mod tidy -diff
	cd examples && go mod tidy -diff
	$(BIN)/golangci-lint run ./...
	cd $(SERVER) && $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...
	cd examples && $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...

$(BIN)/golangci-lint:
	@echo 'building golangci-lint (about 3 minutes the first time) ...'
	@GOBIN=$(BIN) go install $(GOLANGCI_LINT)

.PHONY: bench
bench: build
	go test -run '^$$' -bench . -benchmem ./authn ./authn/x509 ./authn/tokenfile ./authn/serviceaccount ./authn/oidc ./authn/keystone ./authz | awk -f hack/ratios.awk
	go test -run '^$$' -bench . -benchmem ./authz/grant
	cd $(SERVER) && go test -run '^$$' -bench . -benchtime 0.5s ./test/differential
	go run ./test/bench --bin $(BIN)

.PHONY: bench-webhook
bench-webhook: build
	$(call install,nghttp2-client,command -v h2load)
	go build -o $(BIN)/benchwebhook ./test/benchwebhook && $(BIN)/benchwebhook --bin $(BIN)

.PHONY: bench-gateway
bench-gateway: build
	cd $(SERVER) && go build -o $(BIN)/benchgateway ./test/benchgateway && $(BIN)/benchgateway --bin $(BIN)

.PHONY: bench-cli
bench-cli: build
	go test -run '^$$' -bench . -cpu 1,2 ./internal/simulate/replay
	go run ./test/benchcli --bin $(BIN)

.PHONY: bench-tenants
bench-tenants: build
	go run ./test/benchtenants --bin $(BIN)

.PHONY: fuzz fuzz-corpora
fuzz:
	@for package in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
	    echo "$$package $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
	    go test -run "^$$target\$$" -cover $$package; \
	  done; \
	done

# Of what fuzzing has found on this machine, CORPUS inputs of each target stay with it: of every size.
CORPUS ?= 12
fuzz-corpora:
	@for package in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
	    found=$$(go env GOCACHE)/fuzz/$$package/$$target; kept=$$(go list -f '{{.Dir}}' $$package)/testdata/fuzz/$$target; \
	    [ -d $$found ] || continue; \
	    mkdir -p $$kept; every=$$(( $$(ls $$found | wc -l) / $(CORPUS) + 1 )); \
	    ls -S $$found | awk "NR % $$every == 0" | while read -r input; do cp $$found/$$input $$kept/; done; \
	    go test -run "^$$target\$$" -cover $$package; \
	  done; \
	done

.PHONY: golden
golden:
	UPDATE_GOLDEN=1 go test ./cmd/kubectl-tenant/... ./internal/manifests/webhook
	cd $(SERVER) && UPDATE_GOLDEN=1 go test -run Bootstrap ./test/differential

.PHONY: clean
clean:
	rm -rf $(BIN) $(CURDIR)/.cache

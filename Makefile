# CI runs check, test, test-e2e, test-idp, test-browser and demo.
#
#   make demo    build everything, start a control plane with two tenants, walk through requests
#   make test    all tests, the race detector on, a real kube-apiserver included
#   make test-e2e       tests of the webhook service behind an unmodified kube-apiserver
#   make test-idp       tests against a real Keystone and a real OpenID provider, which it installs
#   make test-browser   tests of the access map in a real browser, which it installs
#   make demo-keystone  the same control plane with callers of a real Keystone
#   make check   formatting, vet, linters, tidy modules
#   make bench   benchmarks beside upstream's own code
#   make bench-webhook  the webhook service under load, beside an empty TLS server
#   make bench-cli      kubectl tenant on a large cluster, beside kubectl
#   make fuzz    every fuzz target for FUZZTIME
#   make build   the commands, into bin/

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

KUBERNETES := v1.37.1
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 60s
BIN := $(CURDIR)/bin
SERVER := cmd/kube-apiserver
LDFLAGS := -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)
DEMO_DIR ?= $(CURDIR)/.cache/demo
DEMO_EXIT ?=

HELM := helm.sh/helm/v4/cmd/helm@v4.3.1
KUBECONFORM := github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0

.PHONY: build
build: $(BIN)/kubectl-tenant $(BIN)/kubetenant-webhook
	@cd $(SERVER) && go list -deps . ./kubectl | wc -l | xargs printf 'building kube-apiserver and kubectl (%s packages; about 5 minutes and 3 GB of memory the first time) ...\n'
	@cd $(SERVER) && go build -v -ldflags "$(LDFLAGS)" -o $(BIN)/ . ./kubectl 2>&1 | awk -f $(CURDIR)/.ci/progress.awk
	@cd $(SERVER) && go build -ldflags "$(LDFLAGS)" -o $(BIN)/vanilla-kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver

.PHONY: $(BIN)/kubectl-tenant
$(BIN)/kubectl-tenant:
	@go build -o $@ ./cmd/kubectl-tenant
	@install -m 755 cmd/kubectl-tenant/kubectl_complete-tenant $(BIN)/

.PHONY: $(BIN)/kubetenant-webhook
$(BIN)/kubetenant-webhook:
	@go build -o $@ ./cmd/kubetenant-webhook

.PHONY: demo
demo: build
	@cd $(SERVER) && go run ./demo --bin $(BIN) --dir $(DEMO_DIR) $(if $(DEMO_EXIT),--exit)

.PHONY: test
test: build
	go test -race ./...
	$(BIN)/kubectl-tenant test testdata/scenarios
	cd $(SERVER) && KUBETENANT_BIN=$(BIN) go test -race -timeout 30m -skip '^TestWebhook' ./issuer ./differential ./e2e/... ./demo/...

.PHONY: test-e2e
test-e2e: build $(BIN)/helm $(BIN)/kubeconform
	cd $(SERVER) && KUBETENANT_BIN=$(BIN) go test -race -timeout 30m -run '^TestWebhook' ./e2e

$(BIN)/helm $(BIN)/kubeconform:
	@echo 'building $(@F) ...'
	@GOBIN=$(BIN) go install $(if $(filter helm,$(@F)),$(HELM),$(KUBECONFORM))

# The identity providers: Keystone of the distribution (Debian), an OpenID provider of npm.
IDP := $(CURDIR)/.cache/idp
KEYSTONE := python3-keystone uwsgi-core uwsgi-plugin-python3
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: keystone
keystone:
	@dpkg -s $(KEYSTONE) >/dev/null 2>&1 || { echo 'installing $(KEYSTONE) ...'; \
	  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $(KEYSTONE) >/dev/null; }

$(IDP)/package.json: testdata/idp/package.json
	@command -v npm >/dev/null || { echo 'installing npm ...'; $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends npm >/dev/null; }
	@mkdir -p $(IDP) && cp $< $@
	@cd $(IDP) && npm install --no-audit --no-fund --no-package-lock --loglevel=error || { rm -f package.json; exit 1; }

.PHONY: test-idp
test-idp: keystone $(IDP)/package.json
	KUBETENANT_IDP=$(IDP) go test -race -count=1 -timeout 10m ./cmd/internal/idp

# The browser: Chromium of the distribution (Debian), what drives it and looks at accessibility of npm.
BROWSER_TOOLS := $(CURDIR)/.cache/browser

$(BROWSER_TOOLS)/package.json: testdata/browser/package.json
	@command -v npm >/dev/null || { echo 'installing npm ...'; $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends npm >/dev/null; }
	@mkdir -p $(BROWSER_TOOLS) && cp $< $@
	@cd $(BROWSER_TOOLS) && npm install --no-audit --no-fund --no-package-lock --loglevel=error || { rm -f package.json; exit 1; }

.PHONY: test-browser
test-browser: $(BROWSER_TOOLS)/package.json
	@command -v chromium >/dev/null || { echo 'installing chromium ...'; $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends chromium >/dev/null; }
	KUBETENANT_BROWSER=$(BROWSER_TOOLS) go test -race -count=1 -timeout 10m ./cmd/internal/accessmap

.PHONY: demo-keystone
demo-keystone: build keystone
	@cd $(SERVER) && go run ./demo --bin $(BIN) --dir $(DEMO_DIR) --keystone

.PHONY: check
check: $(BIN)/golangci-lint
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'not gofmt-ed'; exit 1; }
	go mod tidy -diff
	cd $(SERVER) && go mod tidy -diff
	$(BIN)/golangci-lint run ./...
	cd $(SERVER) && $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...

$(BIN)/golangci-lint:
	@echo 'building golangci-lint (about 3 minutes the first time) ...'
	@GOBIN=$(BIN) go install $(GOLANGCI_LINT)

.PHONY: bench
bench: build
	go test -run '^$$' -bench . -benchmem ./authn ./authn/x509 ./authn/tokenfile ./authn/serviceaccount ./authn/oidc ./authn/keystone ./authz | awk -f .ci/ratios.awk
	go test -run '^$$' -bench . -benchmem ./authz/grant
	cd $(SERVER) && go test -run '^$$' -bench . -benchtime 0.5s ./differential
	cd $(SERVER) && go run ./bench --bin $(BIN)

.PHONY: bench-webhook
bench-webhook: build
	@command -v h2load >/dev/null || { echo 'installing nghttp2-client ...'; $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends nghttp2-client >/dev/null; }
	cd $(SERVER) && go build -o $(BIN)/benchwebhook ./benchwebhook && $(BIN)/benchwebhook --bin $(BIN)

.PHONY: bench-cli
bench-cli: build
	go test -run '^$$' -bench . -cpu 1,2 ./cmd/internal/replay
	cd $(SERVER) && go run ./benchcli --bin $(BIN)

.PHONY: fuzz
fuzz:
	@for package in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
	    echo "$$package $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
	  done; \
	done

.PHONY: golden
golden:
	UPDATE_GOLDEN=1 go test ./cmd/kubectl-tenant/... ./cmd/internal/manifests
	cd $(SERVER) && UPDATE_GOLDEN=1 go test -run Bootstrap ./differential

.PHONY: clean
clean:
	rm -rf $(BIN) $(CURDIR)/.cache

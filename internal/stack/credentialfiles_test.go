// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

const mixed = "tok,alice,1,,a\nomitted,bob,2\n"

// TestReloadWithOmittedTenantIsRejected checks that a new version of a credential file is
// rejected if a record has no tenant and there is no default tenant. A new configuration is also
// rejected if it removes the default tenant of a file that needs the default tenant. The previous
// version remains in effect.
func TestReloadWithOmittedTenantIsRejected(t *testing.T) {
	dir := t.TempDir()
	setsDefault := strings.Replace(config, "tokens.csv", "tokens.csv, defaultTenant: a", 1)
	replace(t, dir,
		map[string]string{"tenancy.yaml": config, "tokens.csv": "omitted,bob,2,,system\n", "passwords.csv": ""})
	registry := metrics.NewKubeRegistry()
	stack, err := stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"),
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t)), Register: registry.Register})
	if err != nil {
		t.Fatal(err)
	}
	of := func(token string) string {
		resp, ok, err := stack.Authenticator.AuthenticateRequest(bearer(token))
		if !ok || err != nil {
			return ""
		}
		return resp.User.GetExtra()[tenant.ExtraKey][0]
	}
	if got := of("omitted"); got != "system" {
		t.Fatalf("in a file that names the system tenant: %q", got)
	}
	replace(t, dir, map[string]string{"tokens.csv": mixed})
	eventually(t, "the mixed file is rejected", func() bool { return reloads(t, registry, "error") == 1 })
	if of("tok") != "" || of("omitted") != "system" {
		t.Errorf("after a mixed file: %q, %q", of("tok"), of("omitted"))
	}
	replace(t, dir, map[string]string{"tenancy.yaml": setsDefault})
	eventually(t, "the default tenant is set", func() bool { return of("omitted") == "a" && of("tok") == "a" })

	replace(t, dir, map[string]string{"tenancy.yaml": config})
	eventually(t, "the configuration is rejected", func() bool { return reloads(t, registry, "error") == 2 })
	if got := of("omitted"); got != "a" {
		t.Errorf("after a rejected configuration: %q", got)
	}
}

// TestSystemTenantRecordsAreLogged checks that each loaded version of a file is logged with
// the number of its records of the system tenant. The log contains no content of the records.
func TestSystemTenantRecordsAreLogged(t *testing.T) {
	var log authntest.Log
	logger := funcr.New(func(_, args string) { _, _ = log.Write([]byte(args + "\n")) }, funcr.Options{})
	dir := t.TempDir()
	replace(t, dir, map[string]string{
		"tenancy.yaml": config,
		"tokens.csv":   "CANARY1,CANARY2,CANARY3,CANARY4,,system\nCANARY5,CANARY6,CANARY7,,CANARY8\n",
		"passwords.csv": "CANARY1,CANARY2,3,,system\n$2a$04$t3ujSowHBmau8Z5Yp0KZSevGHWQVCVgqqLfH2YMcaeOn5DMZvGFTy,CANARY4," +
			"5,,system\n",
	})
	_, err := stack.Open(klog.NewContext(t.Context(), logger), filepath.Join(dir, "tenancy.yaml"),
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t))})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`tokens.csv" "records"=2 "systemTenantRecords"=1`,
		`passwords.csv" "records"=2 "systemTenantRecords"=2`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not contain %s:\n%s", want, log.String())
		}
	}
	replace(t, dir,
		map[string]string{"tokens.csv": "CANARY1,CANARY2,CANARY3,,system\nCANARY4,CANARY5,CANARY6,,system\n" +
			"CANARY7,CANARY8,CANARY9,,system\n"})
	eventually(t, "the reload is logged", func() bool {
		return strings.Contains(log.String(), `tokens.csv" "records"=3 "systemTenantRecords"=3`)
	})
	replace(t, dir, map[string]string{"passwords.csv": "CANARY1,CANARY2,3,,acme\nCANARY1,CANARY3,4\n"})
	replace(t, dir, map[string]string{"tokens.csv": "CANARY1,CANARY2,CANARY3,,acme\n"})
	eventually(t, "the second reload is logged", func() bool {
		return strings.Contains(log.String(), `tokens.csv" "records"=1 "systemTenantRecords"=0`)
	})
	if strings.Contains(log.String(), "CANARY") || strings.Contains(log.String(), `passwords.csv" "records"=1`) {
		t.Errorf("the log contains content of a file, or the records of a rejected file:\n%s", log.String())
	}
}

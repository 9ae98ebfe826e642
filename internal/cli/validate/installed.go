// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubetenant/kubetenant/internal/manifests/gateway"
	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

// errNoConfig reports that a file of "generate" cannot be checked without its TenancyConfiguration.
var errNoConfig = errors.New("is compared with a TenancyConfiguration, so name that file too: " +
	"kubectl tenant validate tenancy.yaml")

// installedSet returns the findings for a directory that "generate" wrote.
func (r *run) installedSet(f *file) ([]Finding, error) {
	hasFile := func(name string) bool {
		_, err := os.Stat(filepath.Join(f.path, name))
		return err == nil
	}
	isWebhook := hasFile("cluster") || hasFile("control-plane") || hasFile("crds")
	switch {
	case !isWebhook && !hasFile("clusters"):
		return nil, errors.New("is a directory; name its files, or a directory that generate wrote")
	case r.config == nil:
		return nil, fmt.Errorf("%w %s", errNoConfig, f.name)
	case isWebhook:
		found, err := webhook.Check(f.path, r.config.path, r.Namespace)
		return setFindings(f.path, found), err
	}
	return r.gatewaySet(f)
}

// gatewaySet returns the findings for the files of a gateway. It accepts files that were generated
// with or without --impersonate-service-accounts.
func (r *run) gatewaySet(f *file) ([]Finding, error) {
	o := gateway.Options{Config: r.config.path, Image: "unchecked", Namespace: r.Namespace}
	problems, notes, err := gateway.Check(f.path, o)
	if err != nil {
		return nil, err
	}
	o.Accounts = true
	if with, _, err := gateway.Check(f.path, o); err == nil && len(with) < len(problems) {
		problems = with
	}
	var found []Finding
	for _, text := range problems {
		found = append(found, Finding{Reason: text, Fix: "generate the files again with kubetenant-gateway generate"})
	}
	for _, text := range notes {
		found = append(found, Finding{Severity: Warning, Reason: text})
	}
	return found, nil
}

// serverFile returns the findings for one file of kube-apiserver. The file does not show whether
// it was generated with --self-managed-certificates. Therefore, [webhook.CheckFile] returns the
// fewest findings that are possible.
func (r *run) serverFile(f *file, _ []document) ([]Finding, error) {
	if r.config == nil {
		return nil, fmt.Errorf("%w %s", errNoConfig, f.name)
	}
	found, err := webhook.CheckFile(f.name, f.data, r.config.path, r.Namespace)
	return setFindings("", found), err
}

// setFindings converts findings about generated files.
func setFindings(dir string, all []webhook.Finding) []Finding {
	var found []Finding
	for _, w := range all {
		f := Finding{Line: w.Line, Reason: w.Problem, Fix: setFix(w.Problem)}
		if dir != "" {
			f.File = filepath.Join(dir, w.File)
		}
		found = append(found, f)
	}
	return found
}

// setFix returns the fix for a problem of generated files, or "".
func setFix(problem string) string { return fixOf(setFixes(), problem) }

// setFixes returns pairs of a substring of a message and the fix for this message. The first pair
// whose substring is in the message applies.
func setFixes() [][2]string {
	const again = "generate the file again with kubetenant-webhook generate"
	return [][2]string{
		{"differs from what generate writes", again},
		{"generate does not write", again},
		{"differ from those that generate writes", again},
		{"CustomResourceDefinition/", "apply the folder crds that kubetenant-webhook generate writes"},
		{"is missing:", again + ", and apply or install it"},
		{
			"the AuthorizationConfiguration is missing",
			"add control-plane/authorization.yaml that kubetenant-webhook generate writes",
		},
		{"no webhook authorizer", "add the authorizer that kubetenant-webhook generate writes"},
		{"runs before the service", "move the authorizer kubetenant to the front"},
		{"failurePolicy", "write failurePolicy: Deny for the authorizer, and Fail for webhooks and policies"},
		{"matchPolicy", "write matchPolicy: Equivalent"},
		{"objectSelector", "remove objectSelector"},
		{"namespaceSelector", "remove the selector, or write that of kubetenant-webhook generate"},
		{"must be false", "write false for both fields"},
		{"the URL does not begin with https", "use an https:// URL"},
		{"cannot be decoded", "fix the syntax: kube-apiserver could not read the file either"},
		{"cannot be checked", "fix the syntax: kube-apiserver could not read the file either"},
		{"grants additional rights", "remove the binding"},
	}
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/leaving"
	"github.com/kubetenant/kubetenant/internal/serving/certificates"
)

// A Finding is a problem in an installed set of files. It allows requests by mistake, denies
// requests by mistake, or makes the cluster unusable.
type Finding struct {
	File string
	// Line is the line at which the object begins. It is 0 if the finding is not about an object in
	// the file.
	Line    int
	Problem string
}

func (f Finding) String() string { return f.File + ": " + f.Problem }

// authorizerName is the name of the service in an AuthorizationConfiguration. policySuffix is the
// suffix of the names of policies. In static manifests, staticSuffix replaces it.
const (
	authorizerName = "kubetenant"
	policySuffix   = ".kubetenant.dev"
	staticSuffix   = ".kubetenant.static.k8s.io"
)

// maxTokenTTL is the maximum time for which kube-apiserver may cache the authentication of a token.
const maxTokenTTL = time.Second

// checker collects findings.
type checker struct {
	settings    *configv1alpha1.Settings
	namespace   string
	want        map[string]map[string]any // the output of generate, keyed by kind and name
	selfManaged bool                      // the set creates the service's certificates itself
	flowSchemas bool                      // the controller of the set maintains FlowSchemas
	conditions  []any                     // the match conditions of the authorizer that generate writes
	findings    []Finding

	file                 string
	line                 int
	seen                 map[string]bool     // kinds and names of the objects in the set
	copiedAuthorities    []*x509.Certificate // the authorities in kube-apiserver's files
	publishedAuthorities []*x509.Certificate // the authorities in the cluster
	namespaces           map[string]map[string]string
	subjects             []located[rbacv1.Subject]
	roles                map[string][]rbacv1.PolicyRule // keyed by kind, namespace of Roles, and name
	roleGrants           []roleGrant
	enforcers            []enforcer
	enforced             map[string]bool // names of the policies that a binding enforces everywhere
}

type located[T any] struct {
	file  string
	value T
}

func (c *checker) report(format string, args ...any) {
	c.findings = append(c.findings, Finding{File: c.file, Line: c.line, Problem: fmt.Sprintf(format, args...)})
}

// reportAll reports objects that would allow more requests if kubetenant were removed.
func (c *checker) reportAll(found []leaving.Finding) {
	for _, f := range found {
		c.report("%s", f)
	}
}

// Check checks every file below dir against the TenancyConfiguration at the path config. namespace
// is the namespace of the service. dir contains the output of [Generate], which an operator may
// have changed. It may also contain other objects of the cluster, such as its
// AuthenticationConfiguration, its Namespaces and its bindings.
func Check(dir, config, namespace string) ([]Finding, error) {
	loaded, err := configv1alpha1.Load(config)
	if err != nil {
		return nil, err
	}
	set, err := readSet(dir)
	if err != nil {
		return nil, err
	}
	c := newChecker(loaded, namespace)
	c.selfManaged, c.flowSchemas = isSelfManaged(set), hasFlowSchemas(set)
	if c.want, c.conditions, err = c.generated(config); err != nil {
		return nil, err
	}
	for i := range set {
		c.checkFile(&set[i])
	}
	c.checkSet()
	return c.findings, nil
}

// CheckFile checks one file of a set, whose name ends with .yaml, as [Check] does. It does not
// report objects that are missing from the set. It cannot determine from one file whether the set
// creates the certificates of the service itself, or whether it maintains FlowSchemas. It checks
// all these cases, and returns the findings of the case with the fewest findings.
func CheckFile(name string, data []byte, config, namespace string) ([]Finding, error) {
	loaded, err := configv1alpha1.Load(config)
	if err != nil {
		return nil, err
	}
	var fewest []Finding
	for i, variant := range []struct{ selfManaged, flowSchemas bool }{
		{true, false}, {false, false}, {true, true}, {false, true},
	} {
		c := newChecker(loaded, namespace)
		c.selfManaged, c.flowSchemas = variant.selfManaged, variant.flowSchemas
		if c.want, c.conditions, err = c.generated(config); err != nil {
			return nil, err
		}
		c.checkFile(&setFile{name: name, items: items(data)})
		if i == 0 || len(c.findings) < len(fewest) {
			fewest = c.findings
		}
	}
	return fewest, nil
}

func newChecker(loaded *configv1alpha1.TenancyConfiguration, namespace string) *checker {
	return &checker{
		settings:   &loaded.Settings,
		namespace:  namespace,
		seen:       map[string]bool{},
		namespaces: map[string]map[string]string{},
		roles:      map[string][]rbacv1.PolicyRule{},
		enforced:   map[string]bool{},
	}
}

// setFile is a file of an installed set.
type setFile struct {
	name string // the path below the directory of the set
	text []byte // the content of a file that is not YAML
	// items are the objects of a YAML file. The items of a List are separate objects.
	items []item
}

// item is an object as JSON, or the error of the conversion from YAML.
type item struct {
	json []byte
	err  error
	line int // the first line of the document
}

// readSet reads all files below a directory.
func readSet(dir string) (set []setFile, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f := setFile{}
		if f.name, err = filepath.Rel(dir, path); err != nil {
			return err
		}
		text, err := os.ReadFile(path) // #nosec G304 G122 -- in the operator's directory
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".yaml", ".yml", ".kubeconfig":
			f.items = items(text)
		case ".txt", ".crt", ".pem":
			f.text = text
		}
		set = append(set, f)
		return nil
	})
	return set, err
}

// isSelfManaged reports whether an installed set creates the service's certificates itself. The
// set then has a service account for this purpose.
func isSelfManaged(set []setFile) bool {
	return slices.ContainsFunc(set, func(f setFile) bool {
		return slices.ContainsFunc(f.items, func(doc item) bool {
			var object metav1.PartialObjectMetadata
			return json.Unmarshal(doc.json, &object) == nil && object.Kind == "ServiceAccount" &&
				object.Name == "kubetenant-certificates"
		})
	})
}

// hasFlowSchemas reports whether the controller of an installed set may write FlowSchemas, or
// whether the set has the policy for them. A set that has one of the two needs both.
func hasFlowSchemas(set []setFile) bool {
	return slices.ContainsFunc(set, func(f setFile) bool {
		return slices.ContainsFunc(f.items, func(doc item) bool {
			var role rbacv1.ClusterRole
			if json.Unmarshal(doc.json, &role) != nil {
				return false
			}
			return role.Kind == "ValidatingAdmissionPolicy" &&
				strings.Replace(role.Name, staticSuffix, policySuffix, 1) == "flowschemas"+policySuffix ||
				role.Kind == "ClusterRole" && role.Name == "kubetenant-controller" &&
					slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
						return slices.Contains(r.APIGroups, flowcontrolv1.GroupName)
					})
		})
	})
}

// servingCA returns file as a placeholder for the authorities of the service's certificate, or ""
// if the controller creates the authorities. The content of the file has no effect.
func (c *checker) servingCA(file string) string {
	if c.selfManaged {
		return ""
	}
	return file
}

// generated returns the objects that [Generate] writes for the configuration, keyed by kind and
// name. It also returns the match conditions of the authorizer.
func (c *checker) generated(config string) (map[string]map[string]any, []any, error) {
	files, err := Generate(Options{
		Config:      config,
		ClientCA:    config,
		Namespace:   c.namespace,
		External:    true,
		SelfManaged: c.selfManaged,
		ServingCA:   c.servingCA(config),
		FlowSchemas: c.flowSchemas,
		URL:         "https://none",
		Authorizers: []string{"RBAC"},
	})
	if err != nil {
		return nil, nil, err
	}
	all := map[string]map[string]any{}
	for _, file := range []string{"cluster/webhooks.yaml", "cluster/policies.yaml", "cluster/accounts.yaml"} {
		for _, doc := range items(files[file]) {
			var u unstructured.Unstructured
			if err := decode(doc, &u.Object); err != nil {
				return nil, nil, err
			}
			all[u.GetKind()+"/"+u.GetName()] = u.Object
		}
	}
	if err := addDefinitions(all); err != nil {
		return nil, nil, err
	}
	conditions, err := matchConditions(files["control-plane/authorization.yaml"])
	return all, conditions, err
}

// matchConditions returns the match conditions of the service's authorizer.
func matchConditions(doc []byte) ([]any, error) {
	var config map[string]any
	if err := yaml.Unmarshal(doc, &config); err != nil {
		return nil, err
	}
	authorizers, _, _ := unstructured.NestedSlice(config, "authorizers")
	for _, a := range authorizers {
		if fields, ok := a.(map[string]any); ok && fields["name"] == authorizerName {
			conditions, _, err := unstructured.NestedSlice(fields, "webhook", "matchConditions")
			return conditions, err
		}
	}
	return nil, nil
}

// documents returns the YAML documents of a file.
func documents(data []byte) [][]byte {
	var all [][]byte
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data)))
	defer func() { _ = reader.Close() }()
	buffer := make([]byte, len(data)+1)
	for {
		n, err := reader.Read(buffer)
		if err != nil {
			return all
		}
		if doc := bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(buffer[:n]), []byte("---"))); len(doc) > 0 {
			all = append(all, bytes.Clone(doc))
		}
	}
}

// items returns the objects of a file.
func items(data []byte) []item {
	var all []item
	end := 0
	for _, doc := range documents(data) {
		start := end + max(0, bytes.Index(data[end:], doc))
		end = min(len(data), start+len(doc))
		line := 1 + bytes.Count(data[:start], []byte("\n"))
		text, err := yaml.YAMLToJSON(doc)
		var list struct {
			Kind  string
			Items []json.RawMessage
		}
		if err != nil || json.Unmarshal(text, &list) != nil || !strings.HasSuffix(list.Kind, "List") {
			all = append(all, item{json: text, err: err, line: line})
			continue
		}
		for _, one := range list.Items {
			all = append(all, item{json: one, line: line})
		}
	}
	return all
}

// decode decodes an object.
func decode(doc item, into any) error {
	if doc.err != nil {
		return doc.err
	}
	return json.Unmarshal(doc.json, into)
}

func (c *checker) checkFile(f *setFile) {
	c.file = f.name
	c.line = 0
	switch filepath.Ext(f.name) {
	case ".txt":
		c.checkFlags(string(f.text))
	case ".crt", ".pem":
		c.checkCertificates(f.text)
	}
	for _, doc := range f.items {
		c.line = doc.line
		var object struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
		}
		if err := decode(doc, &object); err != nil {
			c.report("cannot be decoded: %v", err)
			continue
		}
		c.seen[object.Kind+"/"+object.Name] = true
		if err := errors.Join(c.checkKind(object.Kind, doc.json),
			c.checkGenerated(object.Kind, object.Name, doc.json)); err != nil {
			c.report("%s %s cannot be checked: %v", object.Kind, object.Name, err)
		}
	}
}

func (c *checker) checkKind(kind string, doc []byte) error {
	switch kind {
	case "AuthorizationConfiguration":
		return c.checkAuthorization(doc)
	case "AuthenticationConfiguration":
		return decoded(doc, c.checkAuthentication)
	case "Config":
		return decoded(doc, c.checkKubeconfig)
	case "MutatingWebhookConfiguration":
		return decoded(doc, func(w *admissionregistrationv1.MutatingWebhookConfiguration) {
			for _, h := range w.Webhooks {
				c.checkHook(&hook{
					w.Name, h.Name, h.FailurePolicy, h.MatchPolicy, h.ObjectSelector, h.NamespaceSelector, h.Rules, &h.ClientConfig,
				})
			}
		})
	case "ValidatingWebhookConfiguration":
		return decoded(doc, func(w *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for _, h := range w.Webhooks {
				c.checkHook(&hook{
					w.Name, h.Name, h.FailurePolicy, h.MatchPolicy, h.ObjectSelector, h.NamespaceSelector, h.Rules, &h.ClientConfig,
				})
			}
			c.addWebhooks(w)
		})
	case "ValidatingAdmissionPolicy":
		return decoded(doc, func(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
			c.addPolicy(p)
			if isProjectPolicy(p.Name) && p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy != admissionregistrationv1.Fail {
				c.report("policy %s: failurePolicy Ignore allows requests that the policy cannot evaluate", p.Name)
			}
		})
	case "ValidatingAdmissionPolicyBinding":
		return decoded(doc, func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			c.addBinding(b)
			if isProjectPolicy(b.Name) && !slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny) {
				c.report("policy binding %s: validationActions lacks Deny, so the policy rejects nothing", b.Name)
			}
			if isProjectPolicy(b.Name) && b.Spec.MatchResources != nil {
				c.report("policy binding %s: matchResources limits the policy to some requests", b.Name)
			}
		})
	case "ConfigMap":
		return decoded(doc, func(m *corev1.ConfigMap) {
			authorities, err := cert.ParseCertsPEM([]byte(m.Data["ca.crt"]))
			if err == nil && m.Name == certificates.AuthoritiesName {
				c.publishedAuthorities = authorities
			}
		})
	case "Namespace":
		return decoded(doc, func(n *corev1.Namespace) {
			c.namespaces[n.Name] = n.Labels
			c.reportAll(leaving.CheckNamespace(n, c.settings.Authorization.SystemNamespaces))
		})
	case "ClusterRoleBinding":
		return decoded(doc, func(b *rbacv1.ClusterRoleBinding) {
			c.addSubjects(kind, b.Name, b.Subjects)
			c.roleGrants = append(c.roleGrants, roleGrant{c.file, kind + " " + b.Name, "", b.RoleRef, b.Subjects})
			c.reportAll(leaving.CheckClusterRoleBinding(b))
		})
	case "RoleBinding":
		return decoded(doc, func(b *rbacv1.RoleBinding) {
			c.addSubjects(kind, b.Name, b.Subjects)
			c.roleGrants = append(c.roleGrants, roleGrant{c.file, kind + " " + b.Name, b.Namespace, b.RoleRef, b.Subjects})
			c.reportAll(leaving.CheckRoleBinding(b))
		})
	case "ClusterRole":
		return decoded(doc, func(r *rbacv1.ClusterRole) { c.roles[kind+"/"+r.Name] = r.Rules })
	case "Role":
		return decoded(doc, func(r *rbacv1.Role) { c.roles[kind+"/"+r.Namespace+"/"+r.Name] = r.Rules })
	}
	return nil
}

func decoded[T any](doc []byte, check func(*T)) error {
	v := new(T)
	if err := json.Unmarshal(doc, v); err != nil {
		return err
	}
	check(v)
	return nil
}

func isProjectPolicy(name string) bool {
	return strings.HasSuffix(name, policySuffix) || strings.HasSuffix(name, staticSuffix)
}

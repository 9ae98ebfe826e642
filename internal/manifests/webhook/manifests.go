// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook generates the files that an operator installs for kubetenant-webhook from a
// TenancyConfiguration. These are the objects of the cluster, from the templates of the Helm chart,
// and the files of kube-apiserver. [Check] reports problems in installed files that would allow
// requests by mistake or make the cluster unusable.
package webhook

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/manifests/charts"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

//go:embed control-plane
var controlPlane embed.FS

// Options contains the settings that the TenancyConfiguration does not contain.
type Options struct {
	// Config is the path of the TenancyConfiguration.
	Config string
	// Image is the image of the service. It is required unless External is set.
	Image string
	// Namespace is the namespace of the service.
	Namespace string
	// URL is the URL at which kube-apiserver reaches the service, as https://host:port.
	URL string
	// ClusterIP is the cluster IP of the Service, if kube-apiserver uses this address. URL may then
	// be empty.
	ClusterIP string
	// External specifies that the service runs outside of the cluster. The files then do not deploy
	// it, and kube-apiserver sends admission requests to URL too.
	External bool
	// AdmissionOnly installs only the admission webhooks, for clusters whose kube-apiserver cannot
	// be configured. kube-apiserver then presents no certificate and has no files.
	AdmissionOnly bool
	// AdmissionClients are the networks of kube-apiserver's addresses with AdmissionOnly, if they
	// are known. Requests from other addresses are rejected.
	AdmissionClients []net.IPNet
	// ClientCA is the path of the file with the authorities of kube-apiserver's client certificate.
	// It is required unless AdmissionOnly is set. ServingCA is the path of the file with the
	// authorities of the service's certificate. Exactly one of ServingCA and SelfManaged MUST be
	// set.
	ClientCA, ServingCA string
	// SelfManaged makes the controller create and renew the authorities and the service's
	// certificate.
	SelfManaged bool
	// Monitoring adds ServiceMonitors and alert rules.
	Monitoring bool
	// Storage is the type of the volume of each replica, for audit streams and usage records.
	Storage Storage
	// StorageSize is the size of the volume, such as 10Gi. StorageClass is the StorageClass of
	// PersistentVolumeClaims. If empty, the default of the cluster is used.
	StorageSize, StorageClass string
	// BackfillGroups are the API groups of custom resources whose existing objects the controller
	// may label.
	BackfillGroups []string
	// FlowSchemas makes the controller maintain the FlowSchemas of tenants.
	FlowSchemas bool
	// Directory is the directory for the files on the control plane's machines.
	Directory string
	// ClientCertificate and ClientKey are the paths, on these machines, of the certificate that
	// kube-apiserver presents and of its key.
	ClientCertificate, ClientKey string
	// Authorizers are the authorizers that run after the service, such as [Node, RBAC].
	Authorizers []string
	probes      []string // the probe paths in unboundAllow.paths
	audit       bool     // the configuration has audit streams
	// StaticPolicies also generates the policies as static manifests, which are in effect before
	// kube-apiserver handles its first request.
	StaticPolicies bool
}

// definitionsFolder is the folder of the CustomResourceDefinitions, which must be applied first.
const definitionsFolder = "crds"

// Generate returns the files to install, keyed by path. Apply crds/*.yaml, then cluster/*.yaml,
// and copy control-plane/* to the control plane's machines.
func Generate(o Options) (map[string][]byte, error) {
	v, err := valuesOf(&o)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{"values.yaml": nil}
	if out["values.yaml"], err = yaml.Marshal(v); err != nil {
		return nil, err
	}
	data, err := charts.Data(deploy.Files, "chart", o.Namespace, v)
	if err != nil {
		return nil, err
	}
	chart, err := fs.Sub(deploy.Files, "chart/templates")
	if err != nil {
		return nil, err
	}
	isWanted := func(name string) bool { return !o.External || !slices.Contains(deployedTemplates(), name) }
	err = charts.Render(chart, data, isWanted, func(name string, text []byte) {
		if strings.TrimSpace(string(text)) != "" {
			out["cluster/"+name] = text
		}
	})
	if err != nil {
		return nil, err
	}
	for name, definition := range deploy.Definitions() {
		out[definitionsFolder+"/"+name] = []byte(definition)
	}
	if o.AdmissionOnly {
		return out, nil
	}
	return out, o.controlPlane(v, out)
}

// controlPlane adds the files of kube-apiserver to out.
func (o *Options) controlPlane(v map[string]any, out map[string][]byte) error {
	exempt, _ := v["exempt"].(map[string]any)
	users, _ := exempt["users"].([]string)
	host := strings.TrimPrefix(o.URL, "https://")
	if !o.External {
		host = "kubetenant-webhook." + o.Namespace + ".svc"
	}
	data := map[string]any{
		"Values":            v,
		"Directory":         o.Directory,
		"URL":               o.URL,
		"ClientCertificate": o.ClientCertificate,
		"ClientKey":         o.ClientKey,
		"Authorizers":       o.Authorizers,
		"StaticPolicies":    o.StaticPolicies,
		"Audit":             o.audit,
		"AdmissionUser":     host,
		"Users":             append(slices.Clone(users), accountsOf(o)...),
		"Probes":            o.probes,
		"Bound":             namesTenant,
		"Environment":       state.HTTP2Timeouts(),
	}
	files, err := fs.Sub(controlPlane, "control-plane")
	if err != nil {
		return err
	}
	flags, err := charts.RenderOne(files, "flags.txt", data)
	if err != nil {
		return err
	}
	type flag struct{ Name, Value string }
	var list []flag
	for _, line := range strings.Fields(string(flags)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "--"), "=")
		list = append(list, flag{name, value})
	}
	data["Flags"] = list
	write := func(name string, text []byte) { out["control-plane/"+name] = text }
	isWanted := func(name string) bool { return o.audit || !slices.Contains(auditFiles(), name) }
	if err := charts.Render(files, data, isWanted, write); err != nil {
		return err
	}
	if o.ServingCA != "" {
		if out["control-plane/webhook-ca.crt"], err = os.ReadFile(o.ServingCA); err != nil {
			return err
		}
	}
	if o.StaticPolicies {
		out["control-plane/policies/policies.yaml"] = staticPolicies(out["cluster/policies.yaml"])
	}
	return nil
}

// auditFiles returns the files that kube-apiserver needs to send audit events.
func auditFiles() []string { return []string{"webhook-audit.kubeconfig", "audit-policy.yaml"} }

// deployedTemplates returns the templates of the objects that only a service in the cluster needs.
func deployedTemplates() []string {
	return []string{"deployment.yaml", "config.yaml", "monitoring.yaml"}
}

// accountsOf returns the user names of the service accounts in the chart, and the user that the
// controller impersonates.
func accountsOf(o *Options) []string {
	out := []string{
		tenant.ManagerUser,
		serviceaccount.MakeUsername(o.Namespace, "kubetenant-webhook"),
		serviceaccount.MakeUsername(o.Namespace, "kubetenant-controller"),
	}
	if o.SelfManaged {
		out = append(out, serviceaccount.MakeUsername(o.Namespace, "kubetenant-certificates"))
	}
	return out
}

// namesTenant is a CEL expression that is true if the caller has the extra or a group of a tenant.
// It is also true for a caller with a certificate and the name of a service account, because
// service accounts have no certificates.
const namesTenant = `has(request.extra) && "` + tenant.ExtraKey + `" in request.extra || ` +
	`has(request.groups) && request.groups.exists(g, g.startsWith("` + tenant.GroupPrefix + `")) || ` +
	`request.user.startsWith("system:serviceaccount:") && ` +
	`has(request.extra) && "` + user.CredentialIDKey + `" in request.extra && ` +
	`request.extra["` + user.CredentialIDKey + `"].exists(c, c.startsWith("X509SHA256="))`

// probes returns the paths of kube-apiserver that the kubelet probes.
func probes() []string { return []string{"/healthz", "/livez", "/readyz"} }

// staticPolicies returns the policies with the name suffix that static manifests must have
// (k8s.io/apiserver pkg/admission/plugin/manifest, v0.37.1).
func staticPolicies(policies []byte) []byte {
	return bytes.ReplaceAll(policies, []byte(policySuffix+"\n"), []byte(staticSuffix+"\n"))
}

// valuesOf returns the values of the chart.
func valuesOf(o *Options) (map[string]any, error) {
	if o.URL == "" && o.ClusterIP != "" {
		o.URL = "https://" + o.ClusterIP
	}
	serviceURL, err := url.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	config, err := configv1alpha1.Load(o.Config)
	switch {
	case err != nil:
		return nil, err
	case (serviceURL.Scheme != "https" || serviceURL.Hostname() == "") && (!o.AdmissionOnly || o.URL != "" || o.External):
		// Only an AdmissionOnly service in the cluster needs no URL, because kube-apiserver uses
		// its Service.
		return nil, errors.New("the service needs an https:// URL: set --url or --cluster-ip")
	case o.SelfManaged == (o.ServingCA != ""):
		return nil, errors.New("set either --serving-ca-file or --self-managed-certificates")
	case o.Image == "" && !o.External:
		return nil, errors.New("the image is required: set --chart or --image")
	}
	if len(o.AdmissionClients) > 0 && !o.AdmissionOnly {
		return nil, errors.New("--admission-clients requires --admission-only")
	}
	var clientCA []byte
	if !o.AdmissionOnly {
		if clientCA, err = os.ReadFile(o.ClientCA); err != nil {
			return nil, fmt.Errorf("read the authorities of kube-apiserver's client certificate (--client-ca-file): %w", err)
		}
	}
	v, err := charts.Defaults(deploy.Files, "chart")
	if err != nil {
		return nil, err
	}
	v["image"] = o.Image
	v["clientCA"] = string(clientCA)
	v["monitoring"], v["admissionOnly"] = o.Monitoring, o.AdmissionOnly
	v["flowSchemas"] = map[string]bool{"enabled": o.FlowSchemas}
	networks := []string{}
	for i := range o.AdmissionClients {
		networks = append(networks, o.AdmissionClients[i].String())
	}
	v["admissionClients"] = networks
	v["clusterIP"] = o.ClusterIP
	v["names"] = slices.DeleteFunc([]string{serviceURL.Hostname()}, func(name string) bool { return name == "" })
	if o.External {
		v["url"] = o.URL
	} else if err := o.deployedValues(v); err != nil {
		return nil, err
	}
	if o.ServingCA != "" {
		ca, err := os.ReadFile(o.ServingCA)
		if err != nil {
			return nil, err
		}
		v["caBundle"] = string(ca)
	}
	if certificates, ok := v["certificates"].(map[string]any); ok {
		certificates["selfManaged"] = o.SelfManaged
	}
	o.audit = config.Audit != nil && !o.AdmissionOnly
	if o.BackfillGroups != nil {
		v["sweepGroups"] = o.BackfillGroups
	}
	if err := settingsValues(v, config); err != nil {
		return nil, err
	}
	o.probes = slices.DeleteFunc(probes(), func(path string) bool {
		return !slices.Contains(config.Authorization.UnboundAllow.Paths, path)
	})
	return v, nil
}

// settingsValues sets the values of the chart that depend on the configuration.
func settingsValues(v map[string]any, config *configv1alpha1.TenancyConfiguration) error {
	v["grants"] = *config.Authorization.Grants.Enabled
	v["quota"] = *config.Admission.Quota.Enabled
	groups := sets.New[string]()
	for _, k := range config.Admission.Workloads {
		groups.Insert(k.Group)
	}
	v["workloadGroups"] = sets.List(groups)
	v["reservedPrefixes"] = config.Admission.Namespace.NamespacePrefix == v1alpha1.NamespacePrefixRequired
	v["fromGroups"] = config.Authorization.Subject.FromGroups
	v["rbac"] = config.Authorization.RBAC.Evaluator == configv1alpha1.EvaluatorIndexed
	restricted := []map[string]string{}
	for _, r := range config.Admission.Restriction.Resources {
		restricted = append(restricted, map[string]string{"group": r.Group, "resource": r.Resource})
	}
	v["restricted"], v["exemptSystem"] = restricted, config.Admission.Restriction.ExemptSystem
	published := []map[string]string{}
	for _, k := range config.Admission.Publication.Kinds {
		published = append(published, map[string]string{"group": k.Group, "resource": k.Resource})
	}
	v["published"] = published
	publication, err := json.Marshal(config.Admission.Publication)
	if err != nil {
		return err
	}
	v["publication"] = string(publication)
	followed := config.SyncedKeystone()
	v["keystone"] = map[string]bool{
		"enabled":       followed != nil,
		"createTenants": followed != nil && followed.Keystone.Sync.CreateTenants,
	}
	v["gate"] = string(config.Admission.Gate.Mode)
	v["systemNamespaces"] = config.Authorization.SystemNamespaces
	v["exempt"] = exemptOf(&config.Authorization)
	return nil
}

// exemptOf returns the callers whose requests bypass the service. The configuration assigns them to
// the system tenant by name, so that the service would leave their requests to the next authorizers
// anyway. Service accounts in the namespace default are not exempt.
func exemptOf(a *configv1alpha1.Authorization) map[string]any {
	prefixes := slices.Clone(a.SystemSubjects.UserPrefixes)
	for _, namespace := range a.SystemNamespaces {
		if namespace != metav1.NamespaceDefault {
			prefixes = append(prefixes, serviceaccount.MakeUsername(namespace, ""))
		}
	}
	return map[string]any{"users": a.SystemSubjects.Users, "groups": a.SystemSubjects.Groups, "userPrefixes": prefixes}
}

package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// capsuleTenant is what is read of a Capsule Tenant (capsule.clastix.io/v1beta1 and v1beta2).
type capsuleTenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]any `json:"spec"`
	Status            struct {
		Namespaces []string `json:"namespaces"`
	} `json:"status"`
}

// capsuleSpec is what of the spec can be said here.
type capsuleSpec struct {
	Owners []struct {
		Kind         string   `json:"kind"`
		Name         string   `json:"name"`
		ClusterRoles []string `json:"clusterRoles"`
	} `json:"owners"`
	AdditionalRoleBindings []struct {
		ClusterRoleName string           `json:"clusterRoleName"`
		Subjects        []rbacv1.Subject `json:"subjects"`
	} `json:"additionalRoleBindings"`
	ResourceQuotas struct {
		Scope string                     `json:"scope"`
		Items []corev1.ResourceQuotaSpec `json:"items"`
	} `json:"resourceQuotas"`
	LimitRanges struct {
		Items []corev1.LimitRangeSpec `json:"items"`
	} `json:"limitRanges"`
	NetworkPolicies struct {
		Items []networkingv1.NetworkPolicySpec `json:"items"`
	} `json:"networkPolicies"`
}

// capsule reads Tenants of Capsule, with the namespaces that their status names.
func capsule(data []byte) (*Result, error) {
	result := &Result{Files: map[string]string{}}
	documents, err := unlisted(data)
	if err != nil {
		return nil, err
	}
	settings := &admissionSettings{}
	for i, document := range documents {
		t := &capsuleTenant{}
		if err := yaml.Unmarshal(document, t); err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		if t.Kind != "Tenant" || !strings.HasPrefix(t.APIVersion, "capsule.clastix.io/") {
			result.left(fmt.Sprintf("document %d", i), "a %s of %s", t.Kind, t.APIVersion)
			continue
		}
		if err := result.capsuleTenant(t, settings); err != nil {
			return nil, fmt.Errorf("tenant %s: %w", t.Name, err)
		}
	}
	config, err := settings.file()
	if config != "" {
		result.Files["tenancy.yaml"] = config
		result.Next = append(result.Next, "put what tenancy.yaml says of admission into the configuration")
	}
	return result, err
}

// unlisted returns the YAML documents of a file, and the items of a List in place of it.
func unlisted(data []byte) ([][]byte, error) {
	var all [][]byte
	for _, document := range split(data) {
		var list struct {
			Kind  string           `json:"kind"`
			Items []map[string]any `json:"items"`
		}
		if err := yaml.Unmarshal(document, &list); err != nil || !strings.HasSuffix(list.Kind, "List") {
			all = append(all, document)
			continue
		}
		for _, item := range list.Items {
			text, err := yaml.Marshal(item)
			if err != nil {
				return nil, err
			}
			all = append(all, text)
		}
	}
	return all, nil
}

func (r *Result) capsuleTenant(t *capsuleTenant, settings *admissionSettings) error {
	id, err := tenant.Parse(t.Name)
	if err != nil || id.IsSystem() {
		r.left("tenant "+t.Name, "its name is none here")
		return nil
	}
	spec := &capsuleSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Spec, spec); err != nil {
		return err
	}
	known := []string{"owners", "additionalRoleBindings", "resourceQuotas", "limitRanges", "networkPolicies"}
	for _, field := range slices.Sorted(maps.Keys(t.Spec)) {
		if _, admission := capsuleAdmissionFields[field]; !admission && !slices.Contains(known, field) {
			r.left("tenant "+t.Name, "spec.%s", field)
		}
	}
	if err := r.capsuleAdmission(t.Spec, id, settings); err != nil {
		return err
	}
	var objects []any
	for _, ns := range t.Status.Namespaces {
		objects = append(objects, r.capsuleNamespace(spec, ns, t.Name)...)
	}
	if quota := r.capsuleQuota(spec, id); quota != nil {
		objects = append(objects, quota)
	}
	if r.Files[t.Name+".yaml"], err = output.Documents(objects...); err != nil {
		return err
	}
	if len(t.Status.Namespaces) == 0 {
		r.left("tenant "+t.Name, "the status names no namespaces: get the Tenant from the cluster, with its status")
		return nil
	}
	r.Next = append(r.Next, "kubectl tenant adopt "+strings.Join(t.Status.Namespaces, " ")+" --tenant "+id.String()+" --dry-run=server", "kubectl apply -f "+t.Name+".yaml")
	return nil
}

// capsuleNamespace returns what stands in one of the tenant's namespaces.
func (r *Result) capsuleNamespace(spec *capsuleSpec, ns, of string) []any {
	var out []any
	const rbacVersion = "rbac.authorization.k8s.io/v1"
	bind := func(name, role string, subjects []rbacv1.Subject) {
		out = append(out, &rbacv1.RoleBinding{TypeMeta: typeMeta(rbacVersion, "RoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
			Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}})
	}
	for i, owner := range spec.Owners {
		subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: owner.Kind, Name: owner.Name}
		if owner.Kind == rbacv1.ServiceAccountKind {
			parts := strings.Split(owner.Name, ":")
			if len(parts) != 4 {
				r.left("tenant "+of, "the owner %s is no service account", owner.Name)
				continue
			}
			subject = rbacv1.Subject{Kind: owner.Kind, Namespace: parts[2], Name: parts[3]}
		}
		roles := owner.ClusterRoles
		if roles == nil {
			roles = []string{"admin"} // its namespace deleter is of no use: namespaces are the cluster admin's
		}
		for _, role := range roles {
			if role != "capsule-namespace-deleter" {
				bind(fmt.Sprintf("owner-%d-%s", i, role), role, []rbacv1.Subject{subject})
			}
		}
	}
	for i, extra := range spec.AdditionalRoleBindings {
		bind(fmt.Sprintf("additional-%d-%s", i, extra.ClusterRoleName), extra.ClusterRoleName, extra.Subjects)
	}
	if spec.ResourceQuotas.Scope == "Namespace" {
		for i, item := range spec.ResourceQuotas.Items {
			out = append(out, &corev1.ResourceQuota{TypeMeta: typeMeta("v1", "ResourceQuota"), ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("tenant-%d", i), Namespace: ns}, Spec: item})
		}
	}
	for i, item := range spec.LimitRanges.Items {
		out = append(out, &corev1.LimitRange{TypeMeta: typeMeta("v1", "LimitRange"), ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("tenant-%d", i), Namespace: ns}, Spec: item})
	}
	for i, item := range spec.NetworkPolicies.Items {
		out = append(out, &networkingv1.NetworkPolicy{TypeMeta: typeMeta("networking.k8s.io/v1", "NetworkPolicy"), ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("tenant-%d", i), Namespace: ns}, Spec: item})
	}
	return out
}

// capsuleQuota returns the quota over all namespaces; nil where there is none.
func (r *Result) capsuleQuota(spec *capsuleSpec, id tenant.ID) *v1alpha1.TenantQuota {
	if spec.ResourceQuotas.Scope == "Namespace" || len(spec.ResourceQuotas.Items) == 0 {
		return nil
	}
	hard := corev1.ResourceList{}
	for _, item := range spec.ResourceQuotas.Items {
		if len(item.Scopes) > 0 || item.ScopeSelector != nil {
			r.left("tenant "+id.String(), "spec.resourceQuotas: an item for some pods only")
			continue
		}
		for name, limit := range item.Hard {
			if has, twice := hard[name]; !twice || limit.Cmp(has) < 0 {
				hard[name] = limit
			}
		}
	}
	if len(hard) == 0 {
		return nil
	}
	return &v1alpha1.TenantQuota{TypeMeta: typeMeta(tenant.Domain+"/v1alpha1", v1alpha1.KindTenantQuota), ObjectMeta: metav1.ObjectMeta{Name: id.String()},
		Spec: v1alpha1.TenantQuotaSpec{Tenant: id.String(), Hard: hard}}
}

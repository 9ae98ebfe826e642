// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package flowschemas

import (
	"cmp"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// Source is the value of [tenant.ManagedLabel] on the objects that this package writes.
	Source = "fair-use"
	// Level is the name of the PriorityLevelConfiguration that all FlowSchemas use by default.
	Level = "kubetenant-tenants"
	// DefaultLevel is the value of spec.fairUse.level that selects [Level].
	DefaultLevel = "default"
	// NamespacesName is the name of the FlowSchema with one flow for each namespace.
	NamespacesName = "kubetenant-namespaces"
	// TenantPrefix is the prefix of the name of a tenant's FlowSchema. It is followed by the name of
	// the Tenant object.
	TenantPrefix = "kubetenant-tenant-"
	// levelPrefix is the prefix of the name of the PriorityLevelConfiguration that spec.fairUse.level
	// selects.
	levelPrefix = "kubetenant-"

	// MaxTenants is the maximum number of tenants with a FlowSchema. The number is limited because the
	// server compares each request with the FlowSchemas one after another.
	MaxTenants = 500
	// MaxNamespaces is the maximum number of namespaces in one FlowSchema. The number is limited
	// because the server compares each request with the subjects one after another.
	MaxNamespaces = 1000

	// tenantPrecedence and namespacesPrecedence place these FlowSchemas after those of system
	// components and before the FlowSchema service-accounts, whose precedence is 9000
	// (k8s.io/apiserver pkg/apis/flowcontrol/bootstrap, v0.37.1).
	tenantPrecedence     = 8000
	namespacesPrecedence = 8500
)

// newLevel returns the initial PriorityLevelConfiguration [Level]. It has the same limits as
// workload-low, which handles most requests from tenants by default (k8s.io/apiserver
// pkg/apis/flowcontrol/bootstrap, v0.37.1).
func newLevel() *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: Level, Labels: ownLabels()},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: new(int32(100)),
				LendablePercent:          new(int32(90)),
				LimitResponse: flowcontrolv1.LimitResponse{
					Type: flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{
						Queues:           128,
						HandSize:         6,
						QueueLengthLimit: 50,
					},
				},
			},
		},
	}
}

func ownLabels() map[string]string { return map[string]string{tenant.ManagedLabel: Source} }

// isManaged reports whether a FlowSchema has the label of this package, so that this package may
// write it.
func isManaged(f *flowcontrolv1.FlowSchema) bool { return f.Labels[tenant.ManagedLabel] == Source }

// newSchema returns a FlowSchema with one rule.
func newSchema(name string, precedence int32, level string, rule *flowcontrolv1.PolicyRulesWithSubjects,
) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: ownLabels()},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{*rule},
		},
	}
}

func groupSubject(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{
		Kind:  flowcontrolv1.SubjectKindGroup,
		Group: &flowcontrolv1.GroupSubject{Name: name},
	}
}

// namespacedRule returns a rule that matches requests to all resources in all namespaces.
func namespacedRule() flowcontrolv1.ResourcePolicyRule {
	return flowcontrolv1.ResourcePolicyRule{
		Verbs:      []string{flowcontrolv1.VerbAll},
		APIGroups:  []string{flowcontrolv1.APIGroupAll},
		Resources:  []string{flowcontrolv1.ResourceAll},
		Namespaces: []string{flowcontrolv1.NamespaceEvery},
	}
}

// tenantSchema returns the FlowSchema of a tenant. All requests from the tenant's callers share one
// flow.
func tenantSchema(id tenant.ID, level string, namespaces []string) *flowcontrolv1.FlowSchema {
	subjects := []flowcontrolv1.Subject{groupSubject(id.Group())}
	for _, namespace := range namespaces {
		subjects = append(subjects, flowcontrolv1.Subject{
			Kind: flowcontrolv1.SubjectKindServiceAccount,
			ServiceAccount: &flowcontrolv1.ServiceAccountSubject{
				Namespace: namespace,
				Name:      flowcontrolv1.NameAll,
			},
		})
	}
	all := namespacedRule()
	all.ClusterScope = true
	return newSchema(TenantPrefix+id.ObjectName(), tenantPrecedence, level, &flowcontrolv1.PolicyRulesWithSubjects{
		Subjects:      subjects,
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{all},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{
			Verbs:           []string{flowcontrolv1.VerbAll},
			NonResourceURLs: []string{flowcontrolv1.NonResourceAll},
		}},
	})
}

// namespacesSchema returns the FlowSchema for all callers that no earlier FlowSchema matches.
func namespacesSchema() *flowcontrolv1.FlowSchema {
	f := newSchema(NamespacesName, namespacesPrecedence, Level, &flowcontrolv1.PolicyRulesWithSubjects{
		Subjects: []flowcontrolv1.Subject{
			groupSubject(serviceaccount.AllServiceAccountsGroup), groupSubject(user.AllAuthenticated),
		},
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{namespacedRule()},
	})
	f.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{
		Type: flowcontrolv1.FlowDistinguisherMethodByNamespaceType,
	}
	return f
}

// selectedTenant is a tenant that must have a FlowSchema.
type selectedTenant struct {
	id    tenant.ID
	level string // the name of a PriorityLevelConfiguration that exists
}

// selectTenants returns at most MaxTenants tenants with spec.fairUse.level, sorted by the names of
// their Tenants. If the current state of a Tenant is not known, for example because it does not
// decode, the tenant's existing FlowSchema retains its level.
func (s *Syncer) selectTenants(existing map[string]*flowcontrolv1.FlowSchema, found *findings) (all []selectedTenant) {
	for _, id := range s.Tenants.IDs() {
		name := TenantPrefix + id.ObjectName()
		t, known := s.Tenants.Tenant(id)
		switch current := existing[name]; {
		case !known && current != nil && isManaged(current):
			all = append(all, selectedTenant{id, s.existingLevel(current.Spec.PriorityLevelConfiguration.Name)})
		case known && t != nil && t.Spec.FairUse.Level != "":
			all = append(all, selectedTenant{id, s.levelOf(t, name, found)})
		}
	}
	slices.SortFunc(all, func(a, b selectedTenant) int { return cmp.Compare(a.id.ObjectName(), b.id.ObjectName()) })
	if len(all) > MaxTenants {
		for _, c := range all[MaxTenants:] {
			found.add(ReasonTenantLimit, TenantPrefix+c.id.ObjectName(), "")
		}
		all = all[:MaxTenants]
	}
	return all
}

// levelOf returns the name of the PriorityLevelConfiguration that a Tenant selects. If the
// PriorityLevelConfiguration does not exist, levelOf returns [Level], because the server ignores a
// FlowSchema whose level is missing.
func (s *Syncer) levelOf(t *v1alpha1.Tenant, schema string, found *findings) string {
	if t.Spec.FairUse.Level == DefaultLevel {
		return Level
	}
	name := levelPrefix + t.Spec.FairUse.Level
	level := s.existingLevel(name)
	if level != name {
		found.add(ReasonLevelMissing, schema, "the PriorityLevelConfiguration "+name+" does not exist")
	}
	return level
}

// existingLevel returns name, or [Level] if there is no PriorityLevelConfiguration with this name
// or name does not have the prefix levelPrefix.
func (s *Syncer) existingLevel(name string) string {
	if _, err := s.levels.Get(name); err != nil || !strings.HasPrefix(name, levelPrefix) {
		return Level
	}
	return name
}

// namespacesOf returns the names of the first [MaxNamespaces] namespaces that a tenant owns, and
// the number of omitted namespaces. It fails if the namespaces are not known.
func (s *Syncer) namespacesOf(id tenant.ID) (owned []string, omitted int, err error) {
	labeled, err := s.Owned(id.String())
	if err != nil {
		return nil, 0, err
	}
	for _, name := range labeled {
		// The tenant label of a system namespace has no effect.
		if ns, err := s.namespaces.Get(name); err == nil && s.OwnerOf(ns) == id {
			owned = append(owned, name)
		}
	}
	slices.Sort(owned)
	n := min(len(owned), MaxNamespaces)
	return owned[:n], len(owned) - n, nil
}

// wanted returns the FlowSchemas that must exist. If the namespaces of a tenant are not known,
// wanted returns the tenant's existing FlowSchema unchanged.
func (s *Syncer) wanted(existing map[string]*flowcontrolv1.FlowSchema, found *findings) []*flowcontrolv1.FlowSchema {
	all := []*flowcontrolv1.FlowSchema{namespacesSchema()}
	for _, c := range s.selectTenants(existing, found) {
		name := TenantPrefix + c.id.ObjectName()
		namespaces, omitted, err := s.namespacesOf(c.id)
		if err != nil {
			found.add(ReasonUnavailable, name, err.Error())
			if current := existing[name]; current != nil {
				all = append(all, current)
			}
			continue
		}
		if omitted > 0 {
			found.add(ReasonNamespaceLimit, name, "")
		}
		all = append(all, tenantSchema(c.id, c.level, namespaces))
	}
	return all
}

// A change is a write of one FlowSchema. before is nil if the FlowSchema does not exist. after is
// nil if it must not exist.
type change struct{ before, after *flowcontrolv1.FlowSchema }

func (c *change) name() string {
	if c.after != nil {
		return c.after.Name
	}
	return c.before.Name
}

// changes returns the writes that create or update the wanted FlowSchemas and delete all other
// FlowSchemas of tenants. The writes never update or delete an object without the label of this
// package.
func (s *Syncer) changes(
	wanted, existing []*flowcontrolv1.FlowSchema, byName map[string]*flowcontrolv1.FlowSchema, found *findings,
) (all []change) {
	wantedNames := make(map[string]bool, len(wanted))
	for _, want := range wanted {
		wantedNames[want.Name] = true
		switch current := byName[want.Name]; {
		case current == nil:
			all = append(all, change{nil, want})
		case !isManaged(current):
			found.add(ReasonForeign, want.Name, "the object does not have the label "+tenant.ManagedLabel+": "+Source)
		case !equality.Semantic.DeepEqual(current.Spec, want.Spec):
			next := current.DeepCopy()
			next.Spec = want.Spec
			all = append(all, change{current, next})
		}
	}
	for _, current := range existing {
		if isManaged(current) && strings.HasPrefix(current.Name, TenantPrefix) && !wantedNames[current.Name] {
			all = append(all, change{current, nil})
		}
	}
	return all
}

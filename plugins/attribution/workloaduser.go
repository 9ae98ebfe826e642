// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	kjson "sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

// WorkloadUser configures [tenant.WorkloadUserAnnotation]. The names of the fields follow
// YuniKorn (yunikorn-k8shim pkg/admission/conf, 1.7). With the zero value, a caller may supply
// only itself, or a user that it may impersonate.
type WorkloadUser struct {
	// Off disables the annotation. The plugin then does not set or protect it.
	Off bool
	// BypassAuth allows every caller to supply a valid value.
	BypassAuth bool
	// TrustControllers allows the SystemUsers to supply a value.
	TrustControllers bool
	// SystemUsers match the user names of controllers. Only callers of the system tenant can match.
	// An object that a controller creates gets the user of its owner.
	SystemUsers []*regexp.Regexp
	// Restamp replaces the user of a new object with the caller, if the caller may not supply or
	// impersonate that user. The object is denied instead if Restamp is false or the caller
	// matches SystemUsers.
	Restamp bool
	// ExternalUsers and ExternalGroups match the user names and groups of callers that may supply
	// values without reserved names.
	ExternalUsers, ExternalGroups []*regexp.Regexp
	// QualifiedNames reports whether the names of a tenant's callers begin with the tenant and a
	// colon.
	QualifiedNames bool
	// Names are the reserved names.
	Names *tenant.SystemNames
	// Scheduling configures a scheduler for the Pods of tenants. If nil, their Pods are not
	// changed.
	Scheduling *Scheduling
}

// CompilePattern compiles a pattern that matches whole names only.
func CompilePattern(text string) (*regexp.Regexp, error) {
	return regexp.Compile(`\A(?:` + text + `)\z`)
}

var (
	errChanged = errors.New("user info annotation change is not allowed")
	errUser    = errors.New(`the user annotation must be {"user":"...","groups":[...]}`)
	errName    = errors.New("the user annotation may not contain a reserved name")
)

// Limits of the cache of valid values: the number of entries, and the bytes of one value. The
// cache uses at most a few megabytes.
const (
	maxCachedValues     = 1024
	maxCachedValueBytes = 2 << 10
)

// userInfo is the content of [tenant.WorkloadUserAnnotation].
type userInfo struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitempty"`
}

func parse(value string) (*userInfo, error) {
	out := &userInfo{}
	strict, err := kjson.UnmarshalStrict([]byte(value), out)
	if err != nil || len(strict) > 0 || out.User == "" || !strings.HasPrefix(strings.TrimSpace(value), "{") {
		return nil, errUser
	}
	return out, nil
}

func callerValue(u user.Info) (string, error) {
	text, err := json.Marshal(userInfo{u.GetName(), u.GetGroups()})
	return string(text), err
}

func matches(patterns []*regexp.Regexp, name string) bool {
	return slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(name) })
}

// caller is the caller of a request.
type caller struct {
	user.Info
	id tenant.ID // zero if the tenant is unknown
	// controller reports whether the caller matches SystemUsers.
	controller bool
}

func (p *plugin) caller(ctx context.Context, u user.Info) *caller {
	id, err := p.Subject(ctx, u)
	if err != nil {
		id = tenant.ID{} // a caller without a tenant can still be recorded by its name
	}
	return &caller{u, id, id.IsSystem() && matches(p.WorkloadUser.SystemUsers, u.GetName())}
}

// maySupply returns nil if the configuration allows the caller to supply the value.
func (p *plugin) maySupply(c *caller, value string) error {
	w := &p.WorkloadUser
	external := matches(w.ExternalUsers, c.GetName()) ||
		slices.ContainsFunc(c.GetGroups(), func(g string) bool { return matches(w.ExternalGroups, g) })
	trusted := w.BypassAuth || w.TrustControllers && c.controller
	if !external && !trusted {
		return fmt.Errorf("user %s with groups [%s] is not allowed to set user annotation: omit %s",
			c.GetName(), strings.Join(c.GetGroups(), ","), tenant.WorkloadUserAnnotation)
	}
	info, err := p.parse(value)
	if err != nil {
		return err
	}
	if !trusted {
		return w.checkNames(c, info)
	}
	return nil
}

// checkNames checks the names that an external caller supplies. A reserved name is an error, except
// for the groups that the server itself adds to a caller. Each name must also pass
// [WorkloadUser.isQualified].
func (w *WorkloadUser) checkNames(c *caller, info *userInfo) error {
	namespace, isAccount := tenant.ServiceAccountNamespace(info.User)
	if w.Names.ReservedUser(info.User) || !w.isQualified(c, info.User) && !isAccount {
		return errName
	}
	for _, group := range info.Groups {
		if group == user.AllAuthenticated || !c.id.IsZero() && group == c.id.Group() ||
			isAccount && slices.Contains(serviceaccount.MakeGroupNames(namespace), group) {
			continue
		}
		if w.Names.ReservedGroup(group) || !w.isQualified(c, group) {
			return errName
		}
	}
	return nil
}

// isQualified reports whether a name has the prefix of the caller's tenant or does not need one.
// Callers of the system tenant may supply names without a prefix.
func (w *WorkloadUser) isQualified(c *caller, name string) bool {
	return !w.QualifiedNames || c.id.IsSystem() || !c.id.IsZero() && strings.HasPrefix(name, c.id.String()+":")
}

// parse parses a value. It caches valid values, because all Pods of a template have the same value.
func (p *plugin) parse(value string) (*userInfo, error) {
	if known, ok := p.parsedValues.Get(value); ok {
		return known.(*userInfo), nil
	}
	info, err := parse(value)
	if err == nil && len(value) <= maxCachedValueBytes {
		p.parsedValues.Add(value, info)
	}
	return info, err
}

// podTemplate is a Pod, or a Pod template of an object.
type podTemplate struct {
	path string
	meta metav1.Object
}

// podTemplates returns the Pod or the Pod templates of an object, and a function that writes
// changes back. For speed, Pods are not converted.
func (p *plugin) podTemplates(
	a admission.Attributes, obj runtime.Object, o admission.ObjectInterfaces,
) ([]podTemplate, func() error, error) {
	if workload.IsPod(a.GetKind().GroupKind()) {
		m, err := meta.Accessor(obj)
		return []podTemplate{{"", m}}, func() error { return nil }, err
	}
	object, err := p.Kinds.Read(obj, a.GetKind(), o)
	if err != nil && workload.IsFinalizing(a) {
		return nil, nil, nil
	}
	if err != nil || object == nil {
		return nil, nil, err
	}
	out := make([]podTemplate, 0, len(object.Templates))
	for _, t := range object.Templates {
		out = append(out, podTemplate{t.Path, t.Meta})
	}
	return out, object.Write, nil
}

// userValue returns the value of [tenant.WorkloadUserAnnotation], or nil if the object does not
// have the annotation.
func userValue(m metav1.Object) *string {
	if value, ok := m.GetAnnotations()[tenant.WorkloadUserAnnotation]; ok {
		return &value
	}
	return nil
}

// setUser sets the user of new Pods and templates. For existing ones, [plugin.updatedValue]
// determines the value. This includes the subresources of a Pod, because some of them can change
// its metadata.
func (p *plugin) setUser(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object, o admission.ObjectInterfaces,
) error {
	isPod := workload.IsPod(a.GetKind().GroupKind())
	if a.GetSubresource() != "" && (!isPod || a.GetOperation() != admission.Update) {
		return nil
	}
	now, write, err := p.podTemplates(a, a.GetObject(), o)
	if err != nil || len(now) == 0 {
		return err
	}
	before, err := p.matchOldValues(c, a, now, o)
	if err != nil {
		return err
	}
	changed := false
	for _, d := range now {
		var want *string
		if old, known := before[d.path]; known {
			want = p.updatedValue(ctx, c, a, d, old)
		} else if want, err = p.newValue(ctx, c, a, obj, d, o); err != nil {
			return err
		}
		if !sameValue(userValue(d.meta), want) {
			plugins.SetAnnotation(d.meta, tenant.WorkloadUserAnnotation, want)
			changed = true
		}
	}
	if changed {
		err = write()
	}
	if err == nil && isPod && a.GetOperation() == admission.Create {
		err = p.setScheduling(ctx, a, obj, o)
	}
	return err
}

// newValue returns the value that a new Pod or template must have. It warns the caller if the
// caller sent another value.
func (p *plugin) newValue(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object, d podTemplate, o admission.ObjectInterfaces,
) (*string, error) {
	want, err := p.requiredValue(ctx, c, a, obj, d, o)
	if sent := userValue(d.meta); err == nil && sent != nil && want != nil && *sent != *want {
		path := d.path
		if path == "" {
			path = "metadata"
		}
		warning.AddWarning(ctx, "", fmt.Sprintf("%s: the annotation %s was changed to name the author of the object",
			path, tenant.WorkloadUserAnnotation))
	}
	return want, err
}

// updatedValue returns the value that an update stores in an existing Pod or template. This is the
// old value, except in two cases. In a template, the caller may set a value that it may supply. In
// a Pod, a changed value stays in the object, and [plugin.checkUser] denies it. If the old value
// replaces the caller's value, the caller is warned.
func (p *plugin) updatedValue(
	ctx context.Context,
	c *caller,
	a admission.Attributes,
	d podTemplate,
	old *string,
) *string {
	value := userValue(d.meta)
	switch {
	case sameValue(value, old):
		return old
	case value == nil:
		plugins.WarnRestored(ctx, a, d.path, "annotation", tenant.WorkloadUserAnnotation)
		return old
	case d.path == "" || p.maySupply(c, *value) == nil:
		return value
	}
	warning.AddWarning(ctx, "",
		fmt.Sprintf("%s: the annotation %s is managed by the server and was not changed",
			d.path, tenant.WorkloadUserAnnotation))
	return old
}

// sameValue reports whether two values are equal. Nil means no value.
func sameValue(a, b *string) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// matchOldValues returns the old value of each template that existed before an update. The elements
// of a list can move, so an element is matched by its user. Each old element is matched at most
// once. If the number of templates did not change, an element without a match is matched by its
// position, unless its user is the caller. All other templates are matched by their path.
func (p *plugin) matchOldValues(
	c *caller, a admission.Attributes, now []podTemplate, o admission.ObjectInterfaces,
) (oldValues, error) {
	if a.GetOperation() != admission.Update {
		return nil, nil
	}
	old, _, err := p.podTemplates(a, a.GetOldObject(), o)
	if err != nil {
		return nil, err
	}
	callerUser, err := callerValue(c)
	if err != nil {
		return nil, err
	}
	unmatched := map[string]*string{} // the values of old templates without a match, by path
	for _, d := range old {
		unmatched[d.path] = userValue(d.meta)
	}
	out := oldValues{}
	match := func(d podTemplate, path string) {
		out[d.path] = unmatched[path]
		delete(unmatched, path)
	}
	for _, d := range now {
		if path, found := matchOldPath(d, unmatched); found {
			match(d, path)
		}
	}
	for _, d := range now {
		_, matched := out[d.path]
		_, existed := unmatched[d.path]
		moved := listIndex.MatchString(d.path) && (len(old) != len(now) || isValue(userValue(d.meta), callerUser))
		if !matched && existed && !moved {
			match(d, d.path)
		}
	}
	return out, nil
}

// listIndex matches the index of a list element in a path.
var listIndex = regexp.MustCompile(`\[[0-9]+\]`)

// matchOldPath returns the path of an unmatched old element that has the same value. It prefers the
// element in the same position.
func matchOldPath(d podTemplate, unmatched map[string]*string) (string, bool) {
	value := userValue(d.meta)
	if value == nil || !listIndex.MatchString(d.path) {
		return "", false
	}
	if isValue(unmatched[d.path], *value) {
		return d.path, true
	}
	for _, path := range slices.Sorted(maps.Keys(unmatched)) {
		if listIndex.MatchString(path) && isValue(unmatched[path], *value) {
			return path, true
		}
	}
	return "", false
}

func isValue(p *string, value string) bool { return p != nil && *p == value }

// checkUser checks the user after other admission plugins have changed the object. It denies an
// update that changes the user of a Pod. In a template, it allows a user that the caller may
// supply.
func (p *plugin) checkUser(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object, o admission.ObjectInterfaces,
) error {
	now, _, err := p.podTemplates(a, a.GetObject(), o)
	if err != nil || len(now) == 0 {
		return err
	}
	before, err := p.matchOldValues(c, a, now, o)
	if err != nil {
		return err
	}
	for _, d := range now {
		value := userValue(d.meta)
		old, ok := before[d.path]
		if !ok {
			if err := p.checkNew(ctx, c, a, obj, d, o); err != nil {
				return err
			}
			continue
		}
		if sameValue(old, value) {
			continue
		}
		if value == nil || d.path == "" || p.maySupply(c, *value) != nil {
			return errChanged
		}
	}
	return nil
}

// checkNew checks that a new Pod or template has the value from [plugin.requiredValue].
func (p *plugin) checkNew(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object, d podTemplate, o admission.ObjectInterfaces,
) error {
	value := userValue(d.meta)
	want, err := p.requiredValue(ctx, c, a, obj, d, o)
	switch {
	case err != nil:
		return err
	case want != nil && (value == nil || *value != *want):
		return errChanged
	}
	return nil
}

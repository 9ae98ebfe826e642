// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
)

// allowAllRole is a ClusterRole that allows all common verbs for all resources, but not
// impersonation.
const allowAllRole = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole",
"metadata":{"name":"scenario-everything"},
"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["get","list","watch","create","update","patch","delete",
"deletecollection","bind","escalate","approve","attest","sign","use"]},{"nonResourceURLs":["*"],"verbs":["*"]}]}`

// allCallers is a ClusterRoleBinding of allowAllRole to all callers, including anonymous callers.
const allCallers = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding",
"metadata":{"name":"scenario-everybody"},
"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"scenario-everything"},
"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"},
{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:unauthenticated"}]}`

// Admit implements [scenario.Session] with a write to the server. The write is a dry run, so that
// cases do not affect each other.
func (s *session) Admit(ctx context.Context, c *scenario.Credential, a *scenario.Admit) (scenario.Admission, error) {
	if s.fixture.Scenario.Delegate == scenario.DelegateRBAC && !s.allowing {
		if err := s.allow(ctx); err != nil {
			return scenario.Admission{}, err
		}
		s.allowing = true
	}
	w, err := scenario.WriteOf(a)
	if err != nil {
		return scenario.Admission{}, err
	}
	method, path, body, contentType, err := httpWrite(a, w)
	if err != nil {
		return scenario.Admission{}, err
	}
	var got answer
	for tries := 0; ; tries++ {
		if method == http.MethodPut {
			if body, err = s.withVersion(ctx, collection(w)+"/"+url.PathEscape(w.Name), body); err != nil {
				return scenario.Admission{}, err
			}
		}
		if got, err = s.as(ctx, c, method, path, body, http.Header{"Content-Type": {contentType}}); err != nil {
			return scenario.Admission{}, err
		}
		// A controller may write the object between the read of its resourceVersion and the update,
		// so retry after a conflict.
		if method != http.MethodPut || got.code != http.StatusConflict || tries == 5 {
			break
		}
	}
	if got.code >= 300 {
		return scenario.Admission{Denied: fmt.Sprintf("%d: %s", got.code, got.message())}, nil
	}
	return scenario.Admission{Object: got.body}, nil
}

// allow binds allowAllRole to all callers, and waits until the server has observed the binding.
func (s *session) allow(ctx context.Context) error {
	created := revisions{}
	for _, object := range []struct{ resource, text string }{
		{"clusterroles", allowAllRole}, {"clusterrolebindings", allCallers},
	} {
		var made metav1.PartialObjectMetadata
		if err := s.asAdmin(ctx, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/"+object.resource,
			json.RawMessage(object.text), &made); err != nil {
			return err
		}
		revision, err := strconv.ParseInt(made.ResourceVersion, 10, 64)
		if err != nil {
			return err
		}
		created[schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: object.resource}] = revision
	}
	return awaitInformers(ctx, s.caller, created)
}

// withVersion returns a copy of the object with the resourceVersion of the stored object, which an
// update of a custom resource requires.
func (s *session) withVersion(ctx context.Context, path string, object []byte) ([]byte, error) {
	var stored metav1.PartialObjectMetadata
	if err := s.asAdmin(ctx, http.MethodGet, path, nil, &stored); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(object, &u.Object); err != nil {
		return nil, err
	}
	u.SetResourceVersion(stored.ResourceVersion)
	return json.Marshal(u.Object)
}

// httpWrite returns the parts of the HTTP request that performs a scenario's write as a dry run.
func httpWrite(a *scenario.Admit, w scenario.Write) (method, path string, body []byte, contentType string, err error) {
	query := url.Values{"dryRun": {"All"}}
	path, contentType = collection(w), "application/json"
	if a.Operation != "CREATE" || a.Subresource != "" {
		path += "/" + url.PathEscape(w.Name)
	}
	if a.Subresource != "" {
		path += "/" + a.Subresource
	}
	switch a.Operation {
	case "CREATE":
		method, body = http.MethodPost, a.Object.Raw
	case "DELETE":
		method = http.MethodDelete
	case "UPDATE":
		if method, contentType, body, err = update(a); err != nil {
			return "", "", nil, "", err
		}
		if strings.HasSuffix(a.Via, "apply") {
			query.Set("fieldManager", "scenario")
			query.Set("force", fmt.Sprint(a.Via == "force-apply"))
		}
	default:
		err = fmt.Errorf("operation %s over HTTP", a.Operation)
	}
	return method, path + "?" + query.Encode(), body, contentType, err
}

func update(a *scenario.Admit) (method, contentType string, body []byte, err error) {
	switch a.Via {
	case "", "update":
		return http.MethodPut, "application/json", a.Object.Raw, nil
	case "apply", "force-apply":
		return http.MethodPatch, string(types.ApplyYAMLPatchType), a.Object.Raw, nil
	}
	var before, after map[string]any
	if err := json.Unmarshal(a.OldObject.Raw, &before); err != nil {
		return "", "", nil, err
	}
	if err := json.Unmarshal(a.Object.Raw, &after); err != nil {
		return "", "", nil, err
	}
	var patch any = mergePatch(before, after)
	kind := map[string]types.PatchType{
		"merge-patch": types.MergePatchType,
		"strategic":   types.StrategicMergePatchType,
		"json-patch":  types.JSONPatchType,
	}[a.Via]
	if kind == types.JSONPatchType {
		patch = jsonPatch("", before, after)
	}
	body, err = json.Marshal(patch)
	return http.MethodPatch, string(kind), body, err
}

// mergePatch returns the JSON merge patch (RFC 7396) that changes before to after.
func mergePatch(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for key, old := range before {
		now, found := after[key]
		switch oldMap, isMap := old.(map[string]any); {
		case !found:
			patch[key] = nil
		case isMap:
			if nowMap, ok := now.(map[string]any); ok {
				if sub := mergePatch(oldMap, nowMap); len(sub) > 0 {
					patch[key] = sub
				}
				continue
			}
			fallthrough
		case !reflect.DeepEqual(old, now):
			patch[key] = now
		}
	}
	for key, now := range after {
		if _, had := before[key]; !had {
			patch[key] = now
		}
	}
	return patch
}

// jsonPatch returns the JSON Patch (RFC 6902) that changes before to after.
func jsonPatch(at string, before, after map[string]any) []map[string]any {
	ops := []map[string]any{}
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, key := range slices.Sorted(maps.Keys(before)) {
		path := at + "/" + escape.Replace(key)
		now, found := after[key]
		oldMap, oldIs := before[key].(map[string]any)
		nowMap, nowIs := now.(map[string]any)
		switch {
		case !found:
			ops = append(ops, map[string]any{"op": "remove", "path": path})
		case oldIs && nowIs:
			ops = append(ops, jsonPatch(path, oldMap, nowMap)...)
		case !reflect.DeepEqual(before[key], now):
			ops = append(ops, map[string]any{"op": "replace", "path": path, "value": now})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if _, had := before[key]; !had {
			ops = append(ops, map[string]any{"op": "add", "path": at + "/" + escape.Replace(key), "value": after[key]})
		}
	}
	return ops
}

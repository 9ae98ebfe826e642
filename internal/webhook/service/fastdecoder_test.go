// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	stdjson "encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// encodedReviews returns reviews as kube-apiserver encodes them.
func encodedReviews(t testing.TB) (access, token []byte) {
	t.Helper()
	marshal := func(v any) []byte {
		data, err := stdjson.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return append(data, '\n')
	}
	return marshal(&authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   "alice",
				UID:    "u1",
				Groups: []string{"dev", "tenant:a"},
				Extra:  map[string]authorizationv1.ExtraValue{"kubetenant.dev/tenant": {"a"}, "more": {"b", "c"}},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace:   "a--web",
					Verb:        "get",
					Group:       "apps",
					Version:     "v1",
					Resource:    "deployments",
					Subresource: "scale",
					Name:        "d",
				},
			},
		}),
		marshal(&authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{Kind: "TokenReview", APIVersion: "authentication.k8s.io/v1"},
			Spec:     authenticationv1.TokenReviewSpec{Token: "a.b-c_d", Audiences: []string{"https://kubernetes.default.svc"}},
		})
}

// TestFastDecoder checks that the fast decoder accepts the output of kube-apiserver. Otherwise, the
// benchmark would measure the slower JSON module.
func TestFastDecoder(t *testing.T) {
	access, token := encodedReviews(t)
	if !accessFormat().recognize(access, &review[accessSpec]{}) {
		t.Errorf("not recognized: %s", access)
	}
	if !tokenFormat().recognize(token, &review[authenticationv1.TokenReviewSpec]{}) {
		t.Errorf("not recognized: %s", token)
	}
}

// FuzzFastDecoder checks that the JSON module returns the same result for any input that the fast
// decoder accepts.
func FuzzFastDecoder(f *testing.F) {
	access, token := encodedReviews(f)
	for _, good := range []string{string(access), string(token)} {
		f.Add([]byte(good))
		for _, change := range [][2]string{
			{`"kind"`, `"Kind"`},
			{`"kind":`, `"kind":"X","kind":`},
			{`"spec":{`, `"spec":{"uid":"x",`},
			{`"spec":{`, `"spec":{"audiences":[],`},
			{`"spec":{`, `"spec":{"groups":[],`},
			{`"}`, `",}`},
			{`:`, ` : `},
			{`","`, `",,"`},
			{`"a`, `"\u0061`},
			{`"a`, "\"\x01"},
			{`"a`, "\"\xff"},
			{`"a`, `"\"`},
			{`{}`, `null`},
			{`[`, `[ ]`},
			{`]`, `],`},
			{`{`, `{ `},
			{"\n", "{}"},
			{`"extra":{`, `"extra":{"more":["x"],`},
			{`"extra":{`, `"extra":{},"x":{`},
			{`false`, `true`},
			{`"get"`, `null`},
			{`"get"`, `7`},
			{`}`, ``},
		} {
			f.Add([]byte(strings.Replace(good, change[0], change[1], 1)))
			f.Add([]byte(strings.ReplaceAll(good, change[0], change[1])))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		same := func(recognised bool, got, want any) {
			if !recognised {
				return
			}
			if err := json.Unmarshal(body, want); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q was read as %+v; want %+v, %v", body, got, want, err)
			}
		}
		var access, wantAccess review[accessSpec]
		same(accessFormat().recognize(body, &access), &access, &wantAccess)
		var token, wantToken review[authenticationv1.TokenReviewSpec]
		same(tokenFormat().recognize(body, &token), &token, &wantToken)
	})
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"fmt"
	"slices"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubetenant/kubetenant/internal/yamlfile"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// LoadScenarios reads all scenarios in the file at path.
func LoadScenarios(path string) ([]*Scenario, error) {
	data, err := yamlfile.Read(path)
	if err != nil {
		return nil, err
	}
	all, err := DecodeScenarios(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// DecodeScenarios decodes, defaults and validates the YAML documents in data. At least one is
// required. The error contains the number of the document, starting at 1.
func DecodeScenarios(data []byte) ([]*Scenario, error) {
	docs, err := yamlfile.Documents(data)
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	for i, doc := range docs {
		s, err := decode(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		if s.Delegate == "" {
			s.Delegate = DelegateRBAC
		}
		if errs := validateScenario(s); len(errs) > 0 {
			return nil, fmt.Errorf("document %d: %w", i+1, errs.ToAggregate())
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, errors.New("the file contains no scenario")
	}
	return all, nil
}

func decode(doc []byte) (*Scenario, error) {
	full, err := expand(doc)
	if err != nil {
		return nil, err
	}
	s := &Scenario{}
	problems, err := yamlfile.Unmarshal(full, v1alpha1.GroupVersion, KindScenario, s)
	if err != nil {
		return nil, err
	}
	return s, utilerrors.NewAggregate(problems)
}

func validateScenario(s *Scenario) field.ErrorList {
	var errs field.ErrorList
	if s.Metadata.Name == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), ""))
	}
	switch s.Delegate {
	case DelegateRBAC, DelegateAllow, DelegateNoOpinion:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("delegate"), s.Delegate,
			[]Delegate{DelegateRBAC, DelegateAllow, DelegateNoOpinion}))
	}
	if (len(s.Cases) > 0) == (s.Invalid != "") {
		errs = append(errs, field.Invalid(field.NewPath("cases"), len(s.Cases), "exactly one of cases and invalid must be "+
			"set"))
	}
	names := map[string]bool{}
	for i := range s.Cases {
		c := &s.Cases[i]
		path := field.NewPath("cases").Key(c.Name)
		if c.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), "describes the rule that the case tests"))
		}
		if names[c.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
		}
		names[c.Name] = true
		errs = append(errs, validateCase(c, path)...)
	}
	return errs
}

func validateCase(c *Case, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	kinds := 0
	for _, set := range []bool{
		c.Credential.X509 != nil, c.Credential.BearerToken != "", c.Credential.Basic != nil,
		c.Credential.User != nil, c.Credential.Anonymous, c.Credential.ServiceAccount != nil, c.Credential.OIDC != nil,
		c.Credential.Keystone != nil, c.Credential.Webhook != nil,
	} {
		if set {
			kinds++
		}
	}
	if kinds > 1 || kinds == 0 && len(c.Credential.Headers) == 0 {
		errs = append(errs, field.Invalid(path.Child("credential"), kinds, "exactly one kind of credential must be set"))
	}
	errs = append(errs, validateForgeries(&c.Credential, path.Child("credential"))...)
	e := &c.Expect
	expect := path.Child("expect")
	identity := e.User != nil || e.Unauthenticated || e.Refused != nil
	decision := e.Decision != "" || e.NotAllowed
	admission := e.Admitted || e.Denied != nil
	switch {
	case c.Request != nil && c.Admit != nil:
		errs = append(errs, field.Forbidden(path.Child("admit"), "must not be set together with request"))
	case c.Request != nil && (!decision || admission):
		errs = append(errs, field.Required(expect, "a case with request needs decision or notAllowed, and no admission "+
			"result"))
	case c.Admit != nil && (!admission || decision):
		errs = append(errs, field.Required(expect, "a case with admit needs admitted or denied, and no decision"))
	case c.Request == nil && c.Admit == nil && (!identity || decision || admission):
		errs = append(errs, field.Required(expect, "one of user, unauthenticated and refused must be set"))
	}
	switch e.Decision {
	case "", "allow", "deny", "no-opinion":
	default:
		errs = append(errs, field.NotSupported(expect.Child("decision"), e.Decision, []string{"allow", "deny", "no-opinion"}))
	}
	if e.Admitted && e.Denied != nil || e.Object != nil && !e.Admitted {
		errs = append(errs, field.Invalid(expect, "admitted",
			"set either denied or admitted (object is allowed only with admitted)"))
	}
	return append(errs, validateOperation(c.Admit, path.Child("admit"))...)
}

// validateForgeries checks the fields of a credential that specify a fault or a forged token.
func validateForgeries(c *Credential, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	word := func(value string, path *field.Path, words ...string) {
		if value != "" && !slices.Contains(words, value) {
			errs = append(errs, field.NotSupported(path, value, words))
		}
	}
	if c.ServiceAccount != nil {
		word(c.ServiceAccount.JWT.SignWith, path.Child("serviceAccount", "jwt", "signWith"), SignWithNone,
			SignWithPublicKeyAsHMAC, SignWithOtherKey)
	}
	if c.OIDC != nil {
		word(c.OIDC.JWT.SignWith, path.Child("oidc", "jwt", "signWith"), SignWithNone,
			SignWithPublicKeyAsHMAC, SignWithOtherKey)
	}
	if c.Keystone != nil {
		word(c.Keystone.Fault, path.Child("keystone", "fault"), FaultHang, FaultClose)
	}
	if c.Webhook != nil {
		word(c.Webhook.Fault, path.Child("webhook", "fault"), FaultHang, FaultClose, FaultError)
	}
	return errs
}

func validateOperation(a *Admit, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	switch a.Operation {
	case "CREATE":
		if a.Object == nil {
			errs = append(errs, field.Required(path.Child("object"), ""))
		}
	case "UPDATE":
		if a.Object == nil || a.OldObject == nil {
			errs = append(errs, field.Required(path.Child("oldObject"), "an UPDATE needs object and oldObject"))
		}
	case "DELETE":
		if a.OldObject == nil {
			errs = append(errs, field.Required(path.Child("oldObject"), ""))
		}
	case "CONNECT":
	default:
		errs = append(errs, field.NotSupported(path.Child("operation"), a.Operation,
			[]string{"CREATE", "UPDATE", "DELETE", "CONNECT"}))
	}
	switch a.Via {
	case "", "update", "json-patch", "merge-patch", "strategic", "apply", "force-apply":
	default:
		errs = append(errs, field.NotSupported(path.Child("via"), a.Via,
			[]string{"update", "json-patch", "merge-patch", "strategic", "apply", "force-apply"}))
	}
	return errs
}

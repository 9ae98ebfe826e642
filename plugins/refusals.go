package plugins

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
)

// againSeconds is after how long a client tries a write again that [TryAgain] refused.
const againSeconds = 1

// TryAgain refuses a write that may well be let through in a moment. It is a 429, which client-go sends again by itself, ten times
// (k8s.io/client-go rest/with_retry.go, v0.37.1). The server's own controllers are not told when: their workers, which all tenants share,
// would wait for it, and they try again anyway.
func TryAgain(a admission.Attributes, message string) error {
	after := againSeconds
	if strings.HasPrefix(a.GetUserInfo().GetName(), "system:") {
		after = 0
	}
	return apierrors.NewTooManyRequests(message, after)
}

// maxRefusals bounds what one answer says.
const maxRefusals = 16

// Refusals collects what is wrong with an object, so that its author is told all at once. The zero value holds none.
type Refusals struct {
	all  []error
	more int
}

// Add notes what is wrong; nil for nothing. Of very many, the number is kept.
func (r *Refusals) Add(err error) {
	switch {
	case err == nil:
	case len(r.all) < maxRefusals:
		r.all = append(r.all, err)
	default:
		r.more++
	}
}

// Err returns all that was noted as one error, nil for nothing.
func (r *Refusals) Err() error {
	all := r.all
	if r.more > 0 {
		all = append(all[:len(all):len(all)], fmt.Errorf("and %d more", r.more))
	}
	if aggregate := utilerrors.NewAggregate(all); aggregate != nil {
		return aggregate
	}
	return nil
}

// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// maxRefusals bounds what one answer says.
const maxRefusals = 16

// Refusals collects what is wrong with an object, so that its author is told all at once.
// The zero value holds none.
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

"""Members of classes of the core that this room has, see ``popsr._support.extensions``."""

__all__ = ["MEMBERS"]

MEMBERS = {
    "Context._get_op_settings": "_objects.members:op_settings",
    "Context._op_created": "_objects.members:op_created",
    "Graph._create_tensor_id": "_objects.members:create_tensor_id",
    "Graph._pb_graph": "_objects.members:pb_graph",
    "Ir._pb_ir": "_objects.members:pb_ir",
    "Op.opType": "_objects.members:type_of_op",
    "Session._device": "_objects.session:device_of",
    "Session._pb_session": "_objects.session:pb_session",
    "Session._set_device": "_objects.session:set_device",
    "Session._was_attached_stack": "_objects.session:attach_stack",
    "Session.get_cycle_count": "_objects.session:cycle_count",
    "Tensor._from_pb_tensor": "_objects.members:from_pb_tensor",
    "Tensor._pb_tensor": "_objects.members:pb_tensor",
    "Variable._memmap_arr": "_objects.members:mapped_array",
}

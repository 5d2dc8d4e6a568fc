"""Interface of the archived package: names and arguments of its releases 1.6.0 and 1.7.0rc0."""

# Exported names by module, and private ones that programs import.
MODULES = {
    "lightning_habana": (
        "HPUAccelerator HPUCheckpointIO HPUDDPStrategy HPUDataModule HPUDeepSpeedPrecisionPlugin "
        "HPUDeepSpeedStrategy HPUFSDPPrecision HPUFSDPStrategy HPUParallelStrategy HPUPrecisionPlugin HPUProfiler "
        "HPU_AVAILABLE SingleHPUStrategy __version__"
    ),
    "lightning_habana.__about__": "__docs__ __license__ __version__",
    "lightning_habana.fabric": (
        "HPUAccelerator HPUCheckpointIO HPUDDPStrategy HPUFSDPPrecision HPUFSDPStrategy HPUParallelStrategy "
        "HPUPrecision SingleHPUStrategy"
    ),
    "lightning_habana.fabric.accelerator": "HPUAccelerator",
    "lightning_habana.fabric.plugins": "HPUCheckpointIO HPUFSDPPrecision HPUPrecision",
    "lightning_habana.fabric.plugins.fsdp_precision": "HPUFSDPPrecision",
    "lightning_habana.fabric.plugins.io_plugin": "HPUCheckpointIO",
    "lightning_habana.fabric.plugins.precision": "HPUPrecision",
    "lightning_habana.fabric.strategies": "HPUDDPStrategy HPUFSDPStrategy HPUParallelStrategy SingleHPUStrategy",
    "lightning_habana.fabric.strategies.ddp": "HPUDDPStrategy",
    "lightning_habana.fabric.strategies.fsdp": "HPUFSDPStrategy",
    "lightning_habana.fabric.strategies.parallel": "HPUParallelStrategy",
    "lightning_habana.fabric.strategies.single": "SingleHPUStrategy",
    "lightning_habana.pytorch": (
        "HPUAccelerator HPUCheckpointIO HPUDDPStrategy HPUDataModule HPUDeepSpeedPrecisionPlugin "
        "HPUDeepSpeedStrategy HPUFSDPPrecision HPUFSDPStrategy HPUParallelStrategy HPUPrecisionPlugin HPUProfiler "
        "SingleHPUStrategy"
    ),
    "lightning_habana.pytorch.accelerator": "HPUAccelerator",
    "lightning_habana.pytorch.datamodule": "HPUDataModule",
    "lightning_habana.pytorch.datamodule.dataloaders": "",
    "lightning_habana.pytorch.datamodule.dataloaders.resnet_media_pipe": "MediaApiDataLoader",
    "lightning_habana.pytorch.datamodule.datamodule": "HPUDataModule",
    "lightning_habana.pytorch.datamodule.utils": (
        "get_device_string get_rank get_world_size is_dist_avail_and_initialized is_gaudi is_gaudi2 is_main_process"
    ),
    "lightning_habana.pytorch.plugins": (
        "HPUCheckpointIO HPUDeepSpeedPrecisionPlugin HPUFSDPPrecision HPUPrecisionPlugin"
    ),
    "lightning_habana.pytorch.plugins.deepspeed_precision": "HPUDeepSpeedPrecisionPlugin",
    "lightning_habana.pytorch.plugins.fsdp_precision": "HPUFSDPPrecision",
    "lightning_habana.pytorch.plugins.io_plugin": "HPUCheckpointIO",
    "lightning_habana.pytorch.plugins.quant_config": "",
    "lightning_habana.pytorch.plugins.quant_config.fp8": "",
    "lightning_habana.pytorch.plugins.precision": "HPUPrecisionPlugin",
    "lightning_habana.pytorch.profiler": "HPUProfiler",
    "lightning_habana.pytorch.profiler.profiler": "HPUProfiler",
    "lightning_habana.pytorch.strategies": (
        "HPUDDPStrategy HPUDeepSpeedStrategy HPUFSDPStrategy HPUParallelStrategy SingleHPUStrategy"
    ),
    "lightning_habana.pytorch.strategies.ddp": "HPUDDPStrategy",
    "lightning_habana.pytorch.strategies.deepspeed": "HPUDeepSpeedStrategy",
    "lightning_habana.pytorch.strategies.fsdp": "HPUFSDPStrategy",
    "lightning_habana.pytorch.strategies.parallel": "HPUParallelStrategy",
    "lightning_habana.pytorch.strategies.single": "SingleHPUStrategy",
    "lightning_habana.utils": "",
    "lightning_habana.utils.hpu_distributed": (
        "_distributed_available _sync_ddp_if_available _sync_hpu_processes_if_available"
    ),
    "lightning_habana.utils.imports": (
        "_HABANA_FRAMEWORK_AVAILABLE _HPU_SYNAPSE_GREATER_EQUAL_1_11_0 _HPU_SYNAPSE_GREATER_EQUAL_1_14_0 "
        "_HPU_SYNAPSE_GREATER_EQUAL_1_17_0 _KINETO_AVAILABLE _LIGHTNING_GREATER_EQUAL_2_0_0 "
        "_LIGHTNING_GREATER_EQUAL_2_3_0 _TORCHVISION_AVAILABLE _TORCH_GREATER_EQUAL_2_0_0 _TORCH_LESSER_2_3_0 "
        "_TORCH_LESSER_EQUAL_1_13_1"
    ),
    "lightning_habana.utils.resources": (
        "_HABANA_FRAMEWORK_AVAILABLE _INTEL_NEURAL_COMPRESSOR_AVAILABLE "
        "device_count get_device_name_from_backend get_device_name_from_hlsmi get_device_stats "
        "get_hpu_synapse_version is_fp16_available is_fp8_available modify_fp8_json"
    ),
}

# Arguments of the constructors; those before "*" are positional.
ARGUMENTS = {
    "lightning_habana.fabric.HPUDDPStrategy": (
        "accelerator parallel_devices cluster_environment checkpoint_io precision process_group_backend timeout "
        "start_method * bucket_cap_mb"
    ),
    "lightning_habana.fabric.HPUParallelStrategy": (
        "accelerator parallel_devices cluster_environment checkpoint_io precision process_group_backend timeout "
        "start_method * bucket_cap_mb"
    ),
    "lightning_habana.fabric.HPUPrecision": "precision device",
    "lightning_habana.fabric.SingleHPUStrategy": "device accelerator checkpoint_io precision",
    "lightning_habana.pytorch.HPUDDPStrategy": (
        "accelerator parallel_devices cluster_environment checkpoint_io precision_plugin ddp_comm_state ddp_comm_hook "
        "ddp_comm_wrapper model_averaging_period process_group_backend * bucket_cap_mb"
    ),
    "lightning_habana.pytorch.HPUDeepSpeedPrecisionPlugin": "precision device",
    "lightning_habana.pytorch.HPUDeepSpeedStrategy": (
        "accelerator zero_optimization stage remote_device offload_optimizer offload_parameters offload_params_device "
        "nvme_path params_buffer_count params_buffer_size max_in_cpu offload_optimizer_device optimizer_buffer_count "
        "block_size queue_depth single_submit overlap_events thread_count pin_memory sub_group_size "
        "contiguous_gradients overlap_comm allgather_partitions reduce_scatter allgather_bucket_size "
        "reduce_bucket_size zero_allow_untested_optimizer logging_batch_size_per_gpu config logging_level "
        "parallel_devices cluster_environment loss_scale initial_scale_power loss_scale_window hysteresis "
        "min_loss_scale partition_activations cpu_checkpointing contiguous_memory_optimization "
        "synchronize_checkpoint_boundary load_full_weights precision_plugin process_group_backend"
    ),
    "lightning_habana.pytorch.HPUParallelStrategy": (
        "accelerator parallel_devices cluster_environment checkpoint_io precision_plugin ddp_comm_state ddp_comm_hook "
        "ddp_comm_wrapper model_averaging_period process_group_backend * bucket_cap_mb"
    ),
    "lightning_habana.pytorch.HPUPrecisionPlugin": "precision device",
    "lightning_habana.pytorch.HPUProfiler": (
        "dirpath filename group_by_input_shapes export_to_chrome row_limit sort_by_key record_module_names * activities"
    ),
    "lightning_habana.pytorch.SingleHPUStrategy": "device accelerator checkpoint_io precision_plugin",
}
